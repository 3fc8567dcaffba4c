"""One request to a witness: to cosign a checkpoint, or to show the last one that it has."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

from muniment.outgoing import Unreachable
from muniment.tlog.checkpoints import Checkpoint, open_checkpoint
from muniment.tlog.notes import Note, NoteSignature, parse_note
from muniment.tlog.witnessing.messages import (
    ADD_CHECKPOINT,
    ANSWER_BYTES_MAX,
    checkpoint_path,
    parse_cosignature,
    parse_size,
    request_body,
)

if TYPE_CHECKING:
    from muniment.outgoing import Answer, Outgoing
    from muniment.tlog.keys import VerifierKey

# For all requests about one checkpoint: the log waits for the slowest witness.
SECONDS_MAX: Final = 5.0
_OK: Final = 200
_CONFLICT: Final = 409
_UNPROCESSABLE: Final = 422
_SERVER_ERRORS: Final = 500
# Gives the hashes that prove that the tree of so many leaves is the beginning of the tree to be cosigned.
Prove = Callable[[int], Awaitable[Sequence[bytes]]]


class Outcome(Enum):
    """What came of asking a witness."""

    COSIGNED = "cosigned"
    AHEAD = "ahead"  # the witness has a larger tree of this log
    FORKED = "forked"  # the witness has another tree of this log
    REFUSED = "refused"  # it does not know the log, or not its key
    FAILED = "failed"  # no answer in time, or one that means nothing


class Witness(NamedTuple):
    """A witness as the policy names it: `name` is its name there, `url` has no slash at its end."""

    name: str
    key: VerifierKey
    url: str


class Asked(NamedTuple):
    """A checkpoint to be cosigned, the size of its tree, and the time in seconds since 1970."""

    note: Note
    size: int
    now_s: int
    prove: Prove


class Heard(NamedTuple):
    """What a witness said: its signature, the size that it has as far as it says so, and a word on what went wrong."""

    outcome: Outcome
    detail: str = ""
    size: int | None = None
    signature: NoteSignature | None = None


class Known(NamedTuple):
    """The last checkpoint that a witness has of a log, with its note; None: it has shown none, and `detail` says why.

    The note has a valid signature by the key of the log. Those of witnesses were not verified.
    """

    witness: str
    checkpoint: Checkpoint | None
    note: Note | None
    detail: str = ""


async def ask(outgoing: Outgoing, witness: Witness, asked: Asked, old: int) -> Heard:
    """Have a witness cosign a checkpoint; `old` is the size that it is believed to have. Takes at most 5 seconds.

    Raises what `asked.prove` raises, and nothing else.
    """
    try:
        async with asyncio.timeout(SECONDS_MAX):
            heard = await _ask_once(outgoing, witness, asked, old)
            if heard.outcome is Outcome.FAILED and heard.size is not None:
                heard = await _ask_once(outgoing, witness, asked, heard.size)
            return heard
    except TimeoutError:
        return Heard(Outcome.FAILED, "timeout")
    except Unreachable as error:
        return Heard(Outcome.FAILED, str(error))


async def read_checkpoint(outgoing: Outgoing, witness: Witness, origin: str, key: VerifierKey) -> Known:
    """The last checkpoint that a witness has of the log with this origin and key. Raises nothing."""
    url = witness.url + checkpoint_path(origin)
    try:
        content = await outgoing.get(url, seconds_max=SECONDS_MAX, bytes_max=ANSWER_BYTES_MAX)
        note = parse_note(content)
        return Known(witness.name, open_checkpoint(note, key), note)
    except (Unreachable, ValueError) as error:
        return Known(witness.name, None, None, str(error))


async def _ask_once(outgoing: Outgoing, witness: Witness, asked: Asked, old: int) -> Heard:
    """Raises `Unreachable`. An outcome of `FAILED` with a size asks for another request, from this size."""
    body = request_body(old, await asked.prove(old), asked.note)
    fields = [("content-type", "text/plain; charset=utf-8"), ("content-length", str(len(body)))]
    answer = await outgoing.send(
        witness.url + ADD_CHECKPOINT, fields, body, seconds_max=SECONDS_MAX, bytes_max=ANSWER_BYTES_MAX
    )
    if answer.status == _OK:
        try:
            signature = parse_cosignature(answer.content, asked.note.text, witness.key, asked.now_s)
        except ValueError as error:
            return Heard(Outcome.FAILED, str(error))
        return Heard(Outcome.COSIGNED, size=asked.size, signature=signature)
    if answer.status == _CONFLICT:
        return _conflict(answer, asked.size, old)
    if answer.status == _UNPROCESSABLE:
        return Heard(Outcome.FORKED, f"its tree of {old} leaves is no beginning of ours")
    is_failed = answer.status >= _SERVER_ERRORS or answer.status < _CONFLICT // 100 * 100
    return Heard(Outcome.FAILED if is_failed else Outcome.REFUSED, f"http-{answer.status}")


def _conflict(answer: Answer, size: int, old: int) -> Heard:
    """What status 409 means: the witness has another size than `old`, or another tree of this size."""
    try:
        # The media type is not looked at: what the size is good for shows in the next answer.
        has = parse_size(answer.content)
    except ValueError as error:
        has, detail = old, str(error)
    else:
        detail = f"it asks for the proof from {old} leaves, and had it"
    if has > size:
        return Heard(Outcome.AHEAD, f"it has {has} leaves, and we have {size}", has)
    if has != old:
        return Heard(Outcome.FAILED, f"it has {has} leaves, and said another size before", has)
    if old == size:
        return Heard(Outcome.FORKED, f"it has another tree of {size} leaves")
    return Heard(Outcome.FAILED, detail)
