"""Uploads: exactly the expected files of a multipart/form-data body (RFC 7578), streamed in bounded memory.

The library finds the boundaries. This module reads the head of a part, and accepts one spelling of every name: one that
two parsers understand differently can put a file in the wrong place.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Protocol
from urllib.parse import unquote_to_bytes

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser

from muniment.protocol.errors import BodyTooLarge, InvalidUpload
from muniment.service.http.request import Request, content_type

# A file's part has Content-Disposition, Content-Type and perhaps a length or an encoding, in some 150 bytes.
HEADERS_MAX: Final = 8
HEADER_BYTES_MAX: Final = 4_096
# White space after a boundary (RFC 2046 section 5.1.1, transport-padding), of which the library reads each byte in a
# turn of its loop.
PADDING_BYTES_MAX: Final = 256
_TOKEN: Final = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"  # noqa: S105 - RFC 9110 section 5.6.2
# Without escapes: section 4.2 does not define them, clients differ, and no expected name needs one.
# Each repetition begins with a character that the one before cannot end with, so the time is linear. The group's
# repetition is not possessive because of a bug before Python 3.11.5 (gh-106052).
_PARAMETER: Final = rf'[ \t]*+;[ \t;]*+({_TOKEN}+)=(?:"([^"\\]*+)"|({_TOKEN}+))'
_DISPOSITION: Final = re.compile(rf"[ \t]*+form-data((?:{_PARAMETER})*)[ \t;]*+", re.IGNORECASE)
# RFC 8187 section 3.2.1: a charset, perhaps a language, and the percent-encoded text.
_EXTENDED: Final = re.compile(r"utf-8'[A-Za-z0-9-]*+'((?:%[0-9A-Fa-f]{2}|[!#$&+.^_`|~0-9A-Za-z-])+)", re.IGNORECASE)
_ENCODING_NOTHING: Final = frozenset({"binary", "8bit", "7bit"})


@dataclass(frozen=True, slots=True)
class Part:
    """The head of a part that is a file: the field's name and the file's."""

    name: str
    filename: str


class FormParser:
    """Turns chunks into parts and their bytes. Every method raises `InvalidUpload`."""

    def __init__(self, boundary: str) -> None:
        """Parse a form whose parts `boundary` delimits."""
        self._events: list[Part | memoryview] = []
        self._headers: list[tuple[bytes, bytes]] = []
        self._field, self._value = bytearray(), bytearray()
        self._parts = -1  # the preamble is number 0
        self._is_closed = False
        self._parser = MultipartParser(
            boundary,
            {
                "on_header_field": lambda data, start, end: self._field.extend(data[start:end]),
                "on_header_value": lambda data, start, end: self._value.extend(data[start:end]),
                "on_header_end": self._end_header,
                "on_headers_finished": self._end_head,
                "on_part_data": self._take,
                "on_end": self._end,
            },
            max_header_count=HEADERS_MAX,
            max_header_size=HEADER_BYTES_MAX,
        )
        self._padding = re.compile(rb"\r\n--%b[ \t]{%d}" % (re.escape(boundary.encode()), PADDING_BYTES_MAX + 1))
        self._tail = b"\r\n"
        # A form may begin with a preamble (RFC 2046 section 5.1.1), which the library reads as the data of a part.
        self._parser.write(b"--%b\r\n\r\n\r\n" % boundary.encode())

    def feed(self, chunk: bytes) -> Iterator[Part | memoryview]:
        """The parts that begin in `chunk`, each followed by its bytes, in pieces.

        Bytes after the last delimiter are ignored (RFC 2046 section 5.1.1).
        """
        if not self._is_closed:
            near = self._tail + chunk
            if self._padding.search(near):
                raise InvalidUpload(f"more than {PADDING_BYTES_MAX} bytes of white space follow a boundary")
            self._tail = near[-_TAIL_BYTES:]
            try:
                self._parser.write(chunk)
            except FormParserError as error:
                raise InvalidUpload(f"the form is malformed: {error}") from None
        events, self._events = self._events, []
        return iter(events)

    def close(self) -> None:
        """Raise `InvalidUpload` unless the form ended with the body."""
        if not self._is_closed and not self._parts:
            raise InvalidUpload("no line is -- and the boundary in Content-Type; lines end with CRLF")
        if not self._is_closed:
            raise InvalidUpload("the form does not end with its boundary and --")

    def _end_header(self) -> None:
        self._headers.append((bytes(self._field), bytes(self._value)))
        self._field.clear()
        self._value.clear()

    def _end_head(self) -> None:
        self._parts += 1
        if self._parts:
            self._events.append(_part(self._headers))
        self._headers = []

    def _take(self, data: bytes, start: int, end: int) -> None:
        if self._parts:
            self._events.append(memoryview(data)[start:end])

    def _end(self) -> None:
        self._is_closed = True


def _part(headers: list[tuple[bytes, bytes]]) -> Part:
    """The part with these headers; other fields (section 4.8) and parameters (RFC 2183 section 2.8) are ignored."""
    try:
        fields = [(name.decode("ascii").lower(), value.decode()) for name, value in headers]
    except UnicodeDecodeError:
        raise InvalidUpload("a header of a part is not UTF-8") from None
    dispositions = [value for name, value in fields if name == "content-disposition"]
    encodings = {value.strip().lower() for name, value in fields if name == "content-transfer-encoding"}
    if not encodings <= _ENCODING_NOTHING:
        raise InvalidUpload("send the bytes of a part unencoded, without Content-Transfer-Encoding")
    disposition = _DISPOSITION.fullmatch(dispositions[0]) if len(dispositions) == 1 else None
    found = re.findall(_PARAMETER, disposition[1]) if disposition else []
    parameters = {name.lower(): quoted or token for name, quoted, token in found}
    extended = parameters.pop("filename*", None)
    is_plain = len(found) == len(parameters) + (extended is not None) and not any("*" in name for name in parameters)
    if not is_plain or not parameters.keys() >= {"name", "filename"}:
        raise InvalidUpload("every part must be a file: Content-Disposition: form-data with one name and one filename")
    # Section 4.2 forbids `filename*`, but .NET clients send it. Two different names are refused.
    if extended is not None and _extended_text(extended) != parameters["filename"]:
        raise InvalidUpload("filename* of a part is not its filename in UTF-8")
    return Part(parameters["name"], parameters["filename"])


def _extended_text(value: str) -> str | None:
    """The text of an extended parameter value in UTF-8 (RFC 8187 section 3.2); None for any other text."""
    match = _EXTENDED.fullmatch(value)
    try:
        return unquote_to_bytes(match[1]).decode() if match else None
    except UnicodeDecodeError:
        return None


# RFC 2046 section 5.1.1: 1 to 70 of these characters, not ending in a space.
_BOUNDARY: Final = re.compile(r"[0-9A-Za-z'()+_,./:=? -]{0,69}[0-9A-Za-z'()+_,./:=?-]")
# Bytes in which a boundary with too much white space may have begun.
_TAIL_BYTES: Final = len("\r\n--") + 70 + PADDING_BYTES_MAX
# Bytes for the boundaries and headers of an upload.
FRAMING_BYTES_MAX: Final = 16 * 1024


class Sink(Protocol):
    """A destination for the bytes of a file."""

    def write(self, data: memoryview, /) -> object:
        """Write a piece, which may be a view of a much larger buffer and must not be kept."""


@dataclass(frozen=True, slots=True)
class FileDue:
    """An expected file of the form: its limit and its sink."""

    bytes_max: int
    sink: Sink


async def receive_files(request: Request, field: str, due: Mapping[str, FileDue]) -> None:
    """Stream the form's files, all under the name `field`, into their sinks; each must occur exactly once.

    Raises `InvalidUpload`, `BodyTooLarge`, `UnsupportedMediaType` and what `Request.chunks` raises.
    """
    parser, files = FormParser(_boundary(request)), _Files(field, due)
    bytes_max = sum(each.bytes_max for each in due.values()) + FRAMING_BYTES_MAX
    async for chunk in request.chunks(bytes_max):
        files.take_all(parser.feed(chunk))
        del chunk  # many uploads wait for their next one
    parser.close()
    files.finish()


class _Files:
    """The file that is arriving, and those that have arrived."""

    def __init__(self, field: str, due: Mapping[str, FileDue]) -> None:
        self._field = field
        self._due = due
        self._seen: set[str] = set()
        self._write: Callable[[memoryview], None] | None = None

    def take_all(self, events: Iterator[Part | memoryview]) -> None:
        for event in events:
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
    given = content_type(request, "multipart/form-data", "send the files as multipart/form-data, in UTF-8")
    boundaries = given.values("boundary")
    if len(boundaries) != 1 or not _BOUNDARY.fullmatch(boundaries[0]):
        raise InvalidUpload("Content-Type needs one boundary, of at most 70 characters of RFC 2046 section 5.1.1")
    return boundaries[0]
