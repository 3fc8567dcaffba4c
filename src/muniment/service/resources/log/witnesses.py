"""Witnesses of the log: other parties that cosign its checkpoints, each time only after a larger tree of the same.

The policy file of a registry names those that are asked. All are asked at the same time, for a cosignature or for the
last checkpoint that they have (c2sp.org/tlog-witness 1.0.0); a witness that fails is skipped for a while.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Sequence
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec
import structlog

from muniment.outgoing import Outgoing, Unreachable
from muniment.protocol.log.checkpoints import Checkpoint, open_checkpoint, parse_checkpoint
from muniment.protocol.log.fields import base64_of, number_of
from muniment.protocol.log.notes import SIGNATURES_MAX, Note, NoteSignature, VerifierKey, parse_note
from muniment.protocol.log.policy import POLICY_BYTES_MAX, Policy, parse_policy
from muniment.service.running.settings import is_base_url
from muniment.text_files import read_text_file

if TYPE_CHECKING:
    from collections.abc import Collection

    from muniment.outgoing import Answer
    from muniment.protocol.log.notes import VerifierKey
    from muniment.protocol.log.policy import Policy
    from muniment.service.running.metrics.recorder import Metrics
    from muniment.service.running.settings import Settings


class Witness(NamedTuple):
    """A witness as the policy names it: `name` is its name there, `url` has no slash at its end."""

    name: str
    key: VerifierKey
    url: str


def read_policy(settings: Settings) -> Policy | None:
    """The policy in the file that the settings name, or None without such a setting.

    Raises `ValueError` for a file that cannot be read or used.
    """
    if not settings.tlog_policy:
        return None
    path = Path(settings.tlog_policy)
    try:
        policy = parse_policy(read_text_file(path, POLICY_BYTES_MAX + 1))
    except OSError as error:
        raise ValueError(f"tlog_policy cannot be read: {path}: {error.strerror}") from None
    except ValueError as error:
        raise ValueError(f"tlog_policy {path}: {error}") from None
    for name, party in policy.witnesses.items():
        if party.url is not None and not is_base_url(party.url):
            raise ValueError(f"tlog_policy {path}: the URL of the witness {_printed(name)} is not an http or https URL")
    if not policy.is_met([witness.key for witness in witnesses_of(policy)]):
        raise ValueError(f"tlog_policy {path}: the witnesses with a URL are too few for the quorum")
    return policy


def witnesses_of(policy: Policy) -> list[Witness]:
    """The witnesses that have a URL, in the order of the policy."""
    return [
        Witness(_printed(name), party.key, party.url.rstrip("/"))
        for name, party in policy.witnesses.items()
        if party.url is not None
    ]


def _printed(name: str) -> str:
    """A name of a policy for logs and metrics: bytes that are not UTF-8 are replaced."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


ADD_CHECKPOINT: Final = "/add-checkpoint"
# A line with an Ed25519 cosignature has some 130 bytes, one with ML-DSA-44 some 3,300.
ANSWER_BYTES_MAX: Final = 64 * 1024
# A decimal number below 2^63 and its newline.
_SIZE_BYTES_MAX: Final = 20
# The largest difference between the clock of a witness and ours.
_APART_S_MAX: Final = 900


def request_body(old: int, proof: Sequence[bytes], note: Note) -> bytes:
    """The body of a request to cosign `note`, with the proof from the tree of `old` leaves."""
    lines = [f"old {old}", *map(base64_of, proof), "", ""]
    return "\n".join(lines).encode() + note.data


def checkpoint_path(origin: str) -> str:
    """The path of the last checkpoint that a witness has of the log `origin`."""
    return f"/{hashlib.sha256(origin.encode()).hexdigest()}/checkpoint"


def parse_size(content: bytes) -> int:
    """The size of the tree that a witness has, from an answer of status 409. Raises `ValueError`."""
    digits, newline, rest = content[: _SIZE_BYTES_MAX + 1].partition(b"\n")
    if not newline or rest:
        raise ValueError("the size in the answer of a witness is a decimal number and a newline")
    return number_of(digits.decode("ascii", "replace"), "the size in the answer of a witness")


def parse_cosignature(content: bytes, text: str, key: VerifierKey, now_s: int) -> NoteSignature:
    """The signature by `key` over the text of a checkpoint, from an answer of status 200.

    Ignores lines by other keys, and all but the first by `key`. Raises `ValueError` for a signature that is missing,
    does not verify, or whose time differs from `now_s` (seconds since 1970) by more than 15 minutes.
    """
    note = parse_note(text.encode() + b"\n" + content)
    if note.text != text:
        raise ValueError("the answer has an empty line")
    for each in note.signatures:
        if (each.name, each.key_id) == (key.name, key.key_id):
            break
    else:
        raise ValueError("the answer has no signature by the key of the witness")
    at_s = key.signed_at(text, each.signature)
    if at_s is None:
        raise ValueError("the signature of the witness does not verify")
    if abs(at_s - now_s) > _APART_S_MAX:
        raise ValueError(f"the time of the signature is {abs(at_s - now_s)} s away from ours")
    return each


# For all requests about a checkpoint: the log waits for the slowest witness.
SECONDS_MAX: Final = 5.0
_OK: Final = 200
_CONFLICT: Final = 409
_UNPROCESSABLE: Final = 422
_SERVER_ERRORS: Final = 500
# Returns the consistency proof from the tree of that size to the tree to be cosigned.
Prove = Callable[[int], Awaitable[Sequence[bytes]]]


class Outcome(Enum):
    """Result of a request for a cosignature."""

    COSIGNED = "cosigned"
    AHEAD = "ahead"  # the witness has a larger tree of this log
    FORKED = "forked"  # the witness has another tree of this log
    REFUSED = "refused"  # it does not know the log, or not its key
    FAILED = "failed"  # timeout, or an invalid answer


class CosignRequest(NamedTuple):
    """A checkpoint to be cosigned, the size of its tree, and the time in seconds since 1970."""

    note: Note
    size: int
    now_s: int
    prove: Prove


class Reply(NamedTuple):
    """Reply of a witness: its signature, its tree size if reported, and the reason of a failure."""

    outcome: Outcome
    detail: str = ""
    size: int | None = None
    signature: NoteSignature | None = None


class KnownCheckpoint(NamedTuple):
    """The last checkpoint of a log that a witness has, with its note; without a checkpoint, `detail` has the reason.

    The signature by the key of the log is verified; those of witnesses are not.
    """

    witness: str
    checkpoint: Checkpoint | None
    note: Note | None
    detail: str = ""


async def ask(outgoing: Outgoing, witness: Witness, request: CosignRequest, old: int) -> Reply:
    """Ask a witness to cosign a checkpoint; `old` is its presumed tree size. Takes at most 5 seconds.

    Raises what `request.prove` raises, and nothing else.
    """
    try:
        async with asyncio.timeout(SECONDS_MAX):
            reply = await _ask_once(outgoing, witness, request, old)
            if reply.outcome is Outcome.FAILED and reply.size is not None:
                reply = await _ask_once(outgoing, witness, request, reply.size)
            return reply
    except TimeoutError:
        return Reply(Outcome.FAILED, "timeout")
    except Unreachable as error:
        return Reply(Outcome.FAILED, str(error))


async def read_checkpoint(outgoing: Outgoing, witness: Witness, origin: str, key: VerifierKey) -> KnownCheckpoint:
    """The last checkpoint that a witness has of the log with this origin and key. Never raises."""
    url = witness.url + checkpoint_path(origin)
    try:
        content = await outgoing.get(url, seconds_max=SECONDS_MAX, bytes_max=ANSWER_BYTES_MAX)
        note = parse_note(content)
        return KnownCheckpoint(witness.name, open_checkpoint(note, key), note)
    except (Unreachable, ValueError) as error:
        return KnownCheckpoint(witness.name, None, None, str(error))


async def known_checkpoints(
    policy: Policy, origin: str, key: VerifierKey, *, names: Collection[str] | None = None
) -> list[KnownCheckpoint]:
    """The checkpoints that the witnesses with a URL have of the log `origin` with this key; takes at most 5 seconds.

    `names` restricts the witnesses. They may be at private addresses, since the operator named them. Never raises.
    """
    chosen = [each for each in witnesses_of(policy) if names is None or each.name in names]
    if not chosen:
        return []
    async with Outgoing(allow_private=True, connect_seconds_max=SECONDS_MAX) as outgoing:
        return await asyncio.gather(*(read_checkpoint(outgoing, each, origin, key) for each in chosen))


async def _ask_once(outgoing: Outgoing, witness: Witness, request: CosignRequest, old: int) -> Reply:
    """Send one request. `FAILED` with a size: retry from this size. Raises `Unreachable`."""
    body = request_body(old, await request.prove(old), request.note)
    fields = [("content-type", "text/plain; charset=utf-8"), ("content-length", str(len(body)))]
    answer = await outgoing.send(
        witness.url + ADD_CHECKPOINT, fields, body, seconds_max=SECONDS_MAX, bytes_max=ANSWER_BYTES_MAX
    )
    if answer.status == _OK:
        try:
            signature = parse_cosignature(answer.content, request.note.text, witness.key, request.now_s)
        except ValueError as error:
            return Reply(Outcome.FAILED, str(error))
        return Reply(Outcome.COSIGNED, size=request.size, signature=signature)
    if answer.status == _CONFLICT:
        return _conflict(answer, request.size, old)
    if answer.status == _UNPROCESSABLE:
        return Reply(Outcome.FORKED, f"its tree of {old} leaves is not a prefix of ours")
    is_failed = answer.status >= _SERVER_ERRORS or answer.status < _CONFLICT // 100 * 100
    return Reply(Outcome.FAILED if is_failed else Outcome.REFUSED, f"http-{answer.status}")


def _conflict(answer: Answer, size: int, old: int) -> Reply:
    """Interpret status 409: the witness has a size other than `old`, or another tree of this size."""
    try:
        # The media type is not checked: a wrong size is rejected by the next answer.
        has = parse_size(answer.content)
    except ValueError as error:
        has, detail = old, str(error)
    else:
        detail = f"it rejects the proof from {old} leaves"
    if has > size:
        return Reply(Outcome.AHEAD, f"it has {has} leaves, and we have {size}", has)
    if has != old:
        return Reply(Outcome.FAILED, f"it has {has} leaves, and reported another size before", has)
    if old == size:
        return Reply(Outcome.FORKED, f"it has another tree of {size} leaves")
    return Reply(Outcome.FAILED, detail)


_REST_MS_MAX: Final = 300_000
_OPPOSED: Final = frozenset({Outcome.AHEAD, Outcome.FORKED})

_log = structlog.get_logger(__name__)


class Cosigned(NamedTuple):
    """A note with the cosignatures that came, and whether they are enough for the policy.

    `opposed` names the witnesses that now report another tree of this log, or a larger one. `quorum` names those whose
    last reply did, if they are a quorum; otherwise it is empty.
    """

    note: Note
    is_enough: bool
    opposed: tuple[str, ...]
    quorum: tuple[str, ...]


class _Memory(msgspec.Struct):
    """State of a witness in this process: its last outcome, its tree size, and until when it is skipped."""

    witness: Witness
    outcome: Outcome | None = None
    size: int = 0
    failures: int = 0
    due_ms: int = 0

    def opposes(self, size: int) -> bool:
        """Whether its last answer contradicts the tree of `size` leaves. A tree that has grown may have its leaves."""
        return self.outcome is Outcome.FORKED or (self.outcome is Outcome.AHEAD and self.size > size)


class Witnesses:
    """The witnesses with a URL of a policy."""

    def __init__(
        self, policy: Policy, *, outgoing: Outgoing, metrics: Metrics, now_ms: Callable[[], int], pause_ms: int
    ) -> None:
        """Ask through `outgoing`. A witness that fails is skipped for `pause_ms`, then for twice that time.

        `now_ms` is a monotonic clock.
        """
        self._policy, self._outgoing, self._metrics = policy, outgoing, metrics
        self._now_ms, self._pause_ms = now_ms, pause_ms
        self._origin: str = ""
        self._memories = list[_Memory]()
        self._is_short = False
        for witness in witnesses_of(policy):
            for outcome in Outcome:
                self._count(witness, outcome, 0)

    @property
    def is_due(self) -> bool:
        """Whether the last checkpoint lacks the quorum, and a witness that failed may be asked again."""
        now_ms = self._now_ms()
        return self._is_short and any(each.failures and each.due_ms <= now_ms for each in self._memories)

    async def cosign(self, request: CosignRequest) -> Cosigned:
        """Ask the witnesses that are due. Raises what `request.prove` raises."""
        origin = parse_checkpoint(request.note.text).origin
        if origin != self._origin:
            self._origin, self._memories = origin, [_Memory(each) for each in witnesses_of(self._policy)]
        now_ms = self._now_ms()
        due = [each for each in self._memories if each.due_ms <= now_ms]
        found = await asyncio.gather(*(self._ask(each, request) for each in due), return_exceptions=True)
        for reply in found:
            if isinstance(reply, BaseException):
                raise reply
        room = SIGNATURES_MAX - len(request.note.signatures)
        pairs = [(each.witness, reply) for each, reply in zip(due, found, strict=True) if isinstance(reply, Reply)]
        signed = [(witness, reply.signature) for witness, reply in pairs if reply.signature is not None][:room]
        note = Note(request.note.text, (*request.note.signatures, *(signature for _, signature in signed)))
        is_enough = self._policy.is_met([witness.key for witness, _ in signed])
        self._is_short = not is_enough
        opposed = tuple(witness.name for witness, reply in pairs if reply.outcome in _OPPOSED)
        return Cosigned(note, is_enough, opposed, () if is_enough else self._quorum_against(request.size))

    async def _ask(self, memory: _Memory, request: CosignRequest) -> Reply:
        old = memory.size if memory.size <= request.size else 0
        reply = await ask(self._outgoing, memory.witness, request, old)
        self._count(memory.witness, reply.outcome, 1)
        memory.outcome, memory.size = reply.outcome, memory.size if reply.size is None else reply.size
        if reply.outcome is Outcome.COSIGNED:
            memory.failures, memory.due_ms = 0, 0
            return reply
        rest_ms = min(self._pause_ms << min(memory.failures, 32), _REST_MS_MAX)
        memory.failures, memory.due_ms = memory.failures + 1, self._now_ms() + rest_ms
        _log.warning(
            "a witness has not cosigned the checkpoint", witness=memory.witness.name, outcome=reply.outcome.value,
            detail=reply.detail, rests_s=rest_ms // 1000,
        )  # fmt: skip
        return reply

    def _count(self, witness: Witness, outcome: Outcome, count: int) -> None:
        labels = {"witness": witness.name, "outcome": outcome.value}
        self._metrics.counter("tlog_witness_answers_total", **labels).add(count)

    def _quorum_against(self, size: int) -> tuple[str, ...]:
        """The witnesses that contradict the tree of `size` leaves, if they are a quorum.

        A single one of several witnesses is not enough: it may lie.
        """
        against = [each.witness for each in self._memories if each.opposes(size)]
        is_alone = len(against) == 1 and len(self._memories) > 1
        is_quorum = bool(against) and not is_alone and self._policy.is_met([each.key for each in against])
        return tuple(each.name for each in against) if is_quorum else ()
