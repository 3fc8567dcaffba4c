"""The client of a witness: it asks for a cosignature, or for the last checkpoint that the witness has."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

from muniment.outgoing import Outgoing, Unreachable
from muniment.protocol.log.checkpoints import Checkpoint, open_checkpoint
from muniment.protocol.log.notes import Note, NoteSignature, parse_note
from muniment.service.resources.log.witnessing.messages import (
    ADD_CHECKPOINT,
    ANSWER_BYTES_MAX,
    checkpoint_path,
    parse_cosignature,
    parse_size,
    request_body,
)
from muniment.service.resources.log.witnessing.policies import Witness, witnesses_of

if TYPE_CHECKING:
    from collections.abc import Collection

    from muniment.outgoing import Answer
    from muniment.protocol.log.keys import VerifierKey
    from muniment.protocol.log.policy import Policy

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
