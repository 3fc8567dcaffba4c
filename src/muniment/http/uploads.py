"""An upload: exactly the expected files, each streamed to its sink in bounded memory."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from muniment.errors import BodyTooLarge, InvalidUpload, UnsupportedMediaType
from muniment.http.multipart import FormParser, Part
from muniment.http.request import Request

# RFC 2046 section 5.1.1: 1 to 70 of these characters, not ending in a space.
_CONTENT_TYPE: Final = re.compile(
    r"multipart/form-data\s*;\s*boundary=(?:\"([0-9A-Za-z'()+_,./:=? -]{0,69}[0-9A-Za-z'()+_,./:=?-])\""
    r"|([0-9A-Za-z'+_.-]{1,70}))\s*",
    re.IGNORECASE,
)
# Bytes that the boundaries and headers of an upload may add to its files.
FRAMING_BYTES_MAX: Final = 16 * 1024


class Sink(Protocol):
    """A destination for the bytes of a file, piece by piece."""

    def write(self, data: memoryview, /) -> object:
        """Write a piece. The sink must not keep it: it may be a view of a much larger buffer."""
        ...


@dataclass(frozen=True, slots=True)
class FileDue:
    """A file that the form must hold: its limit, and where its bytes go."""

    bytes_max: int
    sink: Sink


async def receive_files(request: Request, field: str, due: Mapping[str, FileDue]) -> None:
    """Stream the form's files into their sinks; return when each has come exactly once, all under the name `field`.

    Raises `InvalidUpload`, `BodyTooLarge`, `UnsupportedMediaType` and what `Request.chunks` raises.
    """
    parser, files = FormParser(_boundary(request)), _Files(field, due)
    bytes_max = sum(each.bytes_max for each in due.values()) + FRAMING_BYTES_MAX
    async for chunk in request.chunks(bytes_max):
        for event in parser.feed(chunk):
            files.take(event)
    parser.close()
    files.finish()


class _Files:
    """The file that is being received, and the files that have arrived."""

    def __init__(self, field: str, due: Mapping[str, FileDue]) -> None:
        self._field = field
        self._due = due
        self._seen: set[str] = set()
        self._write: Callable[[memoryview], None] | None = None

    def take(self, event: Part | memoryview) -> None:
        if isinstance(event, Part):
            self._write = self._start(event)
        elif self._write is not None:
            self._write(event)

    def _start(self, part: Part) -> Callable[[memoryview], None]:
        name = part.filename
        if part.name != self._field:
            raise InvalidUpload(f"every part must be named {self._field}, not {part.name[:40]!r}")
        if name not in self._due:
            raise InvalidUpload(f"{name[:80]!r} is not one of {', '.join(self._due)}")
        if name in self._seen:
            raise InvalidUpload(f"{name} was sent twice")
        self._seen.add(name)
        due, written = self._due[name], 0

        def write(data: memoryview) -> None:
            nonlocal written
            written += len(data)
            if written > due.bytes_max:
                raise BodyTooLarge(f"{name} has more than {due.bytes_max} bytes")
            due.sink.write(data)

        return write

    def finish(self) -> None:
        for name in self._due:
            if name not in self._seen:
                raise InvalidUpload(f"{name} is missing")


def _boundary(request: Request) -> str:
    content_type = (request.header(b"content-type") or "").strip()
    if not content_type.lower().startswith("multipart/form-data"):
        raise UnsupportedMediaType("send the files as multipart/form-data")
    match = _CONTENT_TYPE.fullmatch(content_type)
    if match is None:
        raise InvalidUpload("Content-Type has no single, well-formed boundary")
    return match[1] or match[2]
