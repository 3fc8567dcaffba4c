"""The life of an intent and of a proposal: which status may follow which, and when time ends it. Pure.

The tables `INTENT_MOVES` and `PROPOSAL_MOVES` are the source of every list of statuses. Types, documents and indexes
must repeat some of them; tests/unit/intents/test_statuses.py compares these with the tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal, NamedTuple, Self, TypeAlias

from muniment.protocol.errors import IntentDiffers, InvalidIntent, StatusConflict
from muniment.protocol.evm.hex import Bytes32, HexString
from muniment.protocol.intents.types import AnyNewIntent, AnyNewProposal, IntentStatus, ProposalStatus, StatusChange

# For each status those that may follow by one move.
Diagram: TypeAlias = Mapping[str, tuple[str, ...]]
# The outcome on chain of an intent or a proposal.
Outcome: TypeAlias = Literal["succeeded", "failed"]

INTENT_MOVES: Final[Diagram] = MappingProxyType(
    {
        "created": ("enqueued", "discarded"),
        "enqueued": ("submitted", "discarded"),
        "submitted": ("succeeded", "failed"),
        "discarded": (),
        "succeeded": (),
        "failed": (),
        "expired": (),
    }
)
PROPOSAL_MOVES: Final[Diagram] = MappingProxyType(
    {
        "received": ("accepted", "rejected", "expired"),
        "accepted": ("submitted", "rejected", "expired"),
        "submitted": ("succeeded", "failed", "expired"),
        "rejected": (),
        "succeeded": (),
        "failed": (),
        "expired": (),
    }
)
# The statuses that read as `expired` from the deadline on, and the one that does later: its transaction may be on its
# way. Time ends no proposal by itself: operators move it to `expired`.
AT_DEADLINE: Final[tuple[IntentStatus, ...]] = ("created", "enqueued")
AFTER_GRACE: Final[IntentStatus] = "submitted"
CAN_EXPIRE: Final[tuple[IntentStatus, ...]] = (*AT_DEADLINE, AFTER_GRACE)
# The status of an intent that the settlement contract has executed.
SUCCEEDED: Final[IntentStatus] = "succeeded"
# Claims about an intent that failed receipts refute. An intent of an earlier status may have no transaction yet.
REFUTABLE: Final[tuple[IntentStatus, ...]] = ("submitted", "succeeded")
# A solver carries out a proposal of these statuses.
PROPOSAL_UNDER_WAY: Final[tuple[ProposalStatus, ...]] = ("accepted", "submitted")


@dataclass(frozen=True, slots=True)
class Moment:
    """The time of a read or a write: milliseconds since 1970, and the grace of the settings in seconds.

    For `grace_s` seconds after its deadline a submitted intent may still be mined; then it reads as `expired`.
    """

    now_ms: int
    grace_s: int


class Claim(NamedTuple):
    """The claim of operators about an intent or a proposal; the hashes of transactions have 32 bytes."""

    status: str
    transaction_hash: bytes | None
    dest_transaction_hash: bytes | None

    @classmethod
    def of(cls, status: str, new: AnyNewIntent | AnyNewProposal) -> Self:
        """The claim of an intent or a proposal that is recorded for the first time."""
        given = (new.transaction_hash, new.dest_transaction_hash)
        return cls(status, *(None if each is None else each.raw for each in given))


class Recorded(NamedTuple):
    """The recorded claim of an intent or a proposal, and its outcome on chain.

    `reads_as` is the status that clients see now: the chain's, else the claimed one, unless it has expired.
    """

    claim: Claim
    reads_as: str
    chain_transaction_hash: bytes | None

    def merge(
        self, status: str | None, new: AnyNewIntent | AnyNewProposal | StatusChange, *, diagram: Diagram, several: bool
    ) -> Claim:
        """The claim after operators sent `new`: the status moves forward, and each transaction is set once.

        `status` is the status that they sent, or None. Raises `InvalidIntent` for an unknown status,
        `StatusConflict` for a move that the diagram lacks (see `check_move`), `IntentDiffers` for another transaction.
        """
        claim, moved = self.claim, self.claim.status
        if status is not None and status != claim.status:
            check_move(diagram, self.reads_as, status, several=several)
            moved = claim.status if status == self.reads_as else status
        return Claim(
            moved,
            _first(claim.transaction_hash, self.chain_transaction_hash, new.transaction_hash, "transactionHash"),
            _first(claim.dest_transaction_hash, None, new.dest_transaction_hash, "destTransactionHash"),
        )


def _first(claimed: bytes | None, of_chain: bytes | None, given: Bytes32 | None, member: str) -> bytes | None:
    """The hash to claim: the first. A hash that the chain has shown needs no claim."""
    if given is None or given.raw in {claimed, of_chain}:
        return claimed
    if first := claimed or of_chain:
        raise IntentDiffers(f"recorded with the {member} {HexString.from_raw(first)}, which stays")
    return given.raw


def passed_until(now_ms: int) -> int:
    """The latest deadline, in Unix seconds, that has passed: the settlement contract refuses from that second on."""
    return now_ms // 1_000


def status_as_read(recorded: str, deadline: int, moment: Moment) -> str:
    """The status that clients see of an intent; `deadline` is in Unix seconds.

    `recorded` is the status of the chain, or else the one that operators claim.
    """
    passed = passed_until(moment.now_ms)
    if recorded in AT_DEADLINE and deadline <= passed:
        return "expired"
    if recorded == AFTER_GRACE and deadline + moment.grace_s <= passed:
        return "expired"
    return recorded


def reachable(diagram: Diagram, status: str) -> tuple[str, ...]:
    """Every status that can follow on `status` by one or more moves, nearest first."""
    found: dict[str, None] = dict.fromkeys(diagram[status])
    waiting = list(found)
    while waiting:
        for after in diagram[waiting.pop(0)]:
            if after not in found:
                found[after] = None
                waiting.append(after)
    return tuple(found)


def check_move(diagram: Diagram, status: str, wanted: str, *, several: bool) -> None:
    """Check that `status` may become `wanted`: by one move, or by more if `several`. The same status is no move.

    Raises `InvalidIntent` for an unknown status, and `StatusConflict` that names the moves that are allowed.
    """
    if wanted not in diagram:
        raise InvalidIntent(f"a status is one of {', '.join(diagram)}", pointer="/status")
    allowed = reachable(diagram, status) if several else diagram[status]
    if wanted != status and wanted not in allowed:
        names = " or ".join(allowed)
        rest = f"from there it goes to {names}" if names else "which is final"
        raise StatusConflict(f"the status is {status}, {rest}, not to {wanted}", pointer="/status")
