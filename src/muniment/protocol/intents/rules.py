"""The rules for acceptable intents, proposals and logs. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, Protocol

from msgspec.structs import replace

from muniment.protocol.errors import Fault, HashMismatch, InvalidIntent
from muniment.protocol.evm.address import Address
from muniment.protocol.evm.hex import Bytes32
from muniment.protocol.intents.hashes import Signed, intent_hash, proposal_hash, settlement_digest, signed_by
from muniment.protocol.intents.lifecycle import passed_until
from muniment.protocol.intents.types import AnyNewIntent, AnyNewProposal, NewIntent, NewLog, NewOperationsProposal
from muniment.protocol.wire import encode

# The JSON of an intent without its proposals and logs: as long as one request may be.
HEAD_BYTES_MAX: Final = 256 * 1024
# The JSON of a proposal: a thousand of them still fit into one answer.
PROPOSAL_BYTES_MAX: Final = 64 * 1024
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class ChainWithSettlers(Protocol):
    """A chain with its settlement contracts."""

    @property
    def id(self) -> int:
        """Its number (EIP-155)."""
        ...

    @property
    def settlers(self) -> tuple[Address, ...]:
        """Its settlement contracts."""
        ...

    @property
    def proposal_signers(self) -> tuple[Address, ...]:
        """The addresses whose signatures under proposals count like a solver's."""
        ...


@dataclass(frozen=True, slots=True)
class CheckedProposal:
    """A proposal with its hash, which is its identity, and its signers."""

    hash: bytes
    new: AnyNewProposal
    signed: Signed


@dataclass(frozen=True, slots=True)
class CheckedLog:
    """A log line with its identity, 32 bytes, and its time in milliseconds since 1970."""

    identity: bytes
    level: str
    data: str
    created_at_ms: int
    id: str | None


@dataclass(frozen=True, slots=True)
class CheckedIntent:
    """An intent with its hash; its proposals and logs without repetitions, the first of each."""

    hash: bytes
    new: AnyNewIntent
    proposals: tuple[CheckedProposal, ...]
    logs: tuple[CheckedLog, ...]


def chains_of(chains: Mapping[int, ChainWithSettlers], settler: Address) -> list[ChainWithSettlers]:
    """The chains that have the settlement contract `settler`."""
    return [chain for chain in chains.values() if settler in chain.settlers]


def check_intent(
    new: AnyNewIntent, path_hash: Bytes32 | None, *, protocol: str, chains: Mapping[int, ChainWithSettlers], now_ms: int
) -> CheckedIntent:
    """`new` with its computed hash, to which the hashes of the path and the body must be equal, if given.

    Raises `HashMismatch` with the computed hash, and `InvalidIntent` for an intent or a proposal that is too large, for
    an impossible time of a log, and for the status `expired` before the deadline has passed.
    """
    computed = intent_hash(new)
    _check_hash(computed, path_hash, Fault("not the hash of these fields", parameter="hash"))
    _check_hash(computed, new.hash, Fault("not the hash of these fields", "/hash"))
    _check_size(replace(new, proposals=[], logs=[]), HEAD_BYTES_MAX, "an intent without its proposals and logs")
    if new.status == "expired" and int(new.deadline) > passed_until(now_ms):
        raise InvalidIntent(
            "an intent expires when its deadline passes; this deadline is in the future", pointer="/status"
        )
    proposals: dict[bytes, CheckedProposal] = {}
    logs: dict[bytes, CheckedLog] = {}
    operations = None if isinstance(new, NewIntent) else len(new.operations)
    for n, proposal in enumerate(new.proposals):
        try:
            checked = check_proposal(
                computed, new.settler, proposal, operations=operations, protocol=protocol, chains=chains
            )
        except InvalidIntent as refusal:
            raise refusal.under(f"/proposals/{n}") from None
        proposals.setdefault(checked.hash, checked)
    for n, log in enumerate(new.logs):
        try:
            line = check_log(log, now_ms, is_alone=False)
        except InvalidIntent as refusal:
            raise refusal.under(f"/logs/{n}") from None
        logs.setdefault(line.identity, line)
    return CheckedIntent(computed, new, tuple(proposals.values()), tuple(logs.values()))


def check_proposal(
    intent_hash: bytes,
    settler: Address,
    new: AnyNewProposal,
    *,
    operations: int | None = None,
    protocol: str,
    chains: Mapping[int, ChainWithSettlers],
) -> CheckedProposal:
    """`new` with its hash as a proposal to that intent.

    `operations` is the number of the intent's operations, None for an intent of generation 1. Raises `InvalidIntent`
    for a proposal of the other form, for another number of `datas`, and for a proposal that is too large.
    """
    _check_datas(new, operations)
    _check_size(new, PROPOSAL_BYTES_MAX, "a proposal")
    computed = proposal_hash(intent_hash, new)
    domains = [
        (settlement_digest(computed, protocol, chain.id, settler), chain.proposal_signers)
        for chain in chains_of(chains, settler)
    ]
    return CheckedProposal(computed, new, signed_by(new, domains))


def _check_datas(new: AnyNewProposal, operations: int | None) -> None:
    if not isinstance(new, NewOperationsProposal):
        if operations is not None:
            raise InvalidIntent("the intent has operations, so its proposals have datas, not data", pointer="/data")
    elif operations is None:
        raise InvalidIntent("the intent has no operations, so its proposals have data, not datas", pointer="/datas")
    elif len(new.datas) != operations:
        raise InvalidIntent(
            f"datas must have {operations} items, one for each operation of the intent", pointer="/datas"
        )


def check_log(new: NewLog, now_ms: int, *, is_alone: bool = True) -> CheckedLog:
    """`new` with its identity; without `createdAt` its time is now.

    A line within a whole intent has no such time in its identity, so that it is the same when the intent comes again.
    Raises `InvalidIntent` for an impossible time, such as the 30th of February, and for one before 1970.
    """
    given_ms = None if new.created_at is None else _milliseconds(new.created_at)
    created_ms = now_ms if given_ms is None else given_ms
    named = [created_ms if is_alone else given_ms, new.level, new.data] if new.id is None else [new.id]
    return CheckedLog(_identity(named), new.level, new.data, created_ms, new.id)


def timeless(log: CheckedLog) -> bytes:
    """The identity that the same line has in a whole intent that was sent without times."""
    return _identity([None, log.level, log.data])


def _identity(parts: Sequence[object]) -> bytes:
    return hashlib.sha256(encode(parts)).digest()


def _milliseconds(text: str) -> int:
    try:
        milliseconds = (datetime.fromisoformat(text) - _EPOCH) // timedelta(milliseconds=1)
    except ValueError:  # the 30th of February; digits of other scripts, which the pattern of `DateTime` lets through
        milliseconds = -1
    if milliseconds < 0 or text[11:13] == "24":  # which Python 3.14 reads as hour 0 of the next day
        raise InvalidIntent("not a date and time since 1970", pointer="/createdAt")
    return milliseconds


def _check_hash(computed: bytes, given: Bytes32 | None, fault: Fault) -> None:
    if given is not None and given.raw != computed:
        detail = "the settlement contract gives these fields another hash"
        raise HashMismatch(detail, faults=[fault], facts={"computed": "0x" + computed.hex()})


def _check_size(value: object, bytes_max: int, what: str) -> None:
    """Check the size of the JSON that is stored and answered, which may be shorter than the JSON in the request."""
    if len(encode(value)) > bytes_max:
        raise InvalidIntent(f"{what} has at most {bytes_max} bytes of JSON", pointer="")
