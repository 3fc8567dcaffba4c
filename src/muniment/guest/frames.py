"""What goes over the pipe between a child and its parent: frames of a length (u32, big-endian) and MessagePack.

Each side bounds what it reads. The parent decodes what a child sends into these types and nothing else, since a child
that a module has taken over may send anything.
"""

from __future__ import annotations

import os
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from muniment.guest.confinement import Confinement
from muniment.guest.limits import INTENTS_MAX, LOG_LINES_MAX, QUESTION_BYTES_MAX
from muniment.guest.types import Answer, Generation, GuestInput, IntentKind, Question
from muniment.protocol.runs.reasons import StopReason

HEAD_BYTES: Final = 4
_CHUNK_BYTES: Final = 1024 * 1024


class CompileJob(msgspec.Struct, tag="compile", frozen=True):
    """Parent to child: compile this module."""

    wasm: bytes


class RunJob(msgspec.Struct, tag="run", frozen=True):
    """Parent to child: run this compiled module."""

    code: bytes
    context: str
    inputs: dict[str, GuestInput]


class Halt(msgspec.Struct, tag="halt", frozen=True):
    """Parent to child, instead of an answer: the run ends here."""

    reason: StopReason
    text: str


class Given(msgspec.Struct, tag="given", frozen=True):
    """Parent to child: the answer to its question."""

    answer: Answer


class Ready(msgspec.Struct, tag="ready", frozen=True):
    """Child to parent, first: how it is confined. It has read nothing yet."""

    confinement: Confinement


class Asked(msgspec.Struct, tag="asked", frozen=True):
    """Child to parent: a question, which is to be answered before anything else is sent."""

    question: Question


class Done(msgspec.Struct, tag="done", frozen=True, kw_only=True):
    """Child to parent, last: what became of a run. `reason` is None unless it was stopped."""

    reason: StopReason | None
    text: str
    fuel_used: int
    logs: Annotated[list[str], Meta(max_length=LOG_LINES_MAX)]
    logs_cut: bool
    intents: Annotated[list[tuple[IntentKind, bytes]], Meta(max_length=INTENTS_MAX)]


class Coded(msgspec.Struct, tag="coded", frozen=True):
    """Child to parent, last: the code of a module."""

    generation: Generation
    code: bytes


class Failed(msgspec.Struct, tag="failed", frozen=True):
    """Child to parent, last: the module cannot be compiled."""

    reason: StopReason
    text: str


ToChild = CompileJob | RunJob | Halt | Given
FromChild = Ready | Asked | Done | Coded | Failed

_encoder: Final = msgspec.msgpack.Encoder()
_to_child: Final[msgspec.msgpack.Decoder[ToChild]] = msgspec.msgpack.Decoder(ToChild)
_from_child: Final[msgspec.msgpack.Decoder[FromChild]] = msgspec.msgpack.Decoder(FromChild)
# A byte of a question can become an object of sixty bytes, so frames that are longer than any question are not decoded
# as one.
_long_from_child: Final[msgspec.msgpack.Decoder[Done | Coded]] = msgspec.msgpack.Decoder(Done | Coded)


class BadFrame(Exception):
    """A frame that is too long, or that is no message."""


def frame(message: ToChild | FromChild) -> bytes:
    """`message` with its length."""
    data = _encoder.encode(message)
    return len(data).to_bytes(HEAD_BYTES, "big") + data


def length_of(head: bytes, length_max: int) -> int:
    """The length that a frame begins with. Raises `BadFrame` above `length_max`."""
    length = int.from_bytes(head, "big")
    if length > length_max:
        raise BadFrame(f"a frame of {length} bytes; {length_max} are taken")
    return length


def read_from_child(data: bytes) -> FromChild:
    """What a child sent. Raises `BadFrame`."""
    try:
        return (_from_child if len(data) <= QUESTION_BYTES_MAX else _long_from_child).decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise BadFrame("a frame that is no message") from error


class Pipe:
    """A child's end: it waits for what it reads and writes. Nothing but read(2) and write(2) is used."""

    def __init__(self, descriptor: int, length_max: int) -> None:
        self._descriptor = descriptor
        self._length_max = length_max

    def send(self, message: FromChild) -> None:
        """Send a whole frame."""
        rest = memoryview(frame(message))
        while rest:
            rest = rest[os.write(self._descriptor, rest) :]

    def receive(self) -> ToChild:
        """The next frame. Raises `EOFError` when the parent has closed the pipe."""
        length = length_of(self._read(HEAD_BYTES), self._length_max)
        return _to_child.decode(self._read(length))

    def _read(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            part = os.read(self._descriptor, min(size - len(data), _CHUNK_BYTES))
            if not part:
                raise EOFError
            data += part
        return bytes(data)
