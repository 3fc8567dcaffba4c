"""The parts of a multipart/form-data body (RFC 7578) as it arrives, with the header fields of each.

The library finds the boundaries. This module reads the head of a part, and accepts one spelling of everything: a name
that two parsers understand differently can put a file in the wrong place.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote_to_bytes

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser

from muniment.errors import InvalidUpload

# A file's part has Content-Disposition, Content-Type and perhaps a length or an encoding, in some 150 bytes.
HEADERS_MAX: Final = 8
HEADER_BYTES_MAX: Final = 4_096
_TOKEN: Final = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"  # noqa: S105 - RFC 9110 section 5.6.2
# Without escapes: section 4.2 leaves them open, clients write them differently, and no expected name needs one.
# Each repetition begins with a character that none before it can end with, so the time is linear in the length. That of
# a group is not possessive: before Python 3.11.5, such a one takes half of a repetition for a whole one (gh-106052).
_PARAMETER: Final = rf'[ \t]*+;[ \t]*+({_TOKEN}+)=(?:"([^"\\]*+)"|({_TOKEN}+))'
_DISPOSITION: Final = re.compile(rf"form-data((?:{_PARAMETER})*)[ \t]*+", re.IGNORECASE)
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
        self._is_closed = False
        self._parser = MultipartParser(
            boundary,
            {
                "on_header_field": lambda data, start, end: self._field.extend(data[start:end]),
                "on_header_value": lambda data, start, end: self._value.extend(data[start:end]),
                "on_header_end": self._end_header,
                "on_headers_finished": self._end_head,
                "on_part_data": lambda data, start, end: self._events.append(memoryview(data)[start:end]),
                "on_end": self._end,
            },
            max_header_count=HEADERS_MAX,
            max_header_size=HEADER_BYTES_MAX,
        )

    def feed(self, chunk: bytes) -> Iterator[Part | memoryview]:
        """The parts and bytes that `chunk` completes: each part is followed by its bytes, in pieces.

        Bytes after the last delimiter are ignored (RFC 2046 section 5.1.1).
        """
        if not self._is_closed:
            try:
                self._parser.write(chunk)
            except FormParserError as error:
                raise InvalidUpload(f"the form is malformed: {error}") from None
        events, self._events = self._events, []
        return iter(events)

    def close(self) -> None:
        """Raise `InvalidUpload` unless the form ended with the body."""
        if not self._is_closed:
            raise InvalidUpload("the form does not end with its boundary and --")

    def _end_header(self) -> None:
        self._headers.append((bytes(self._field), bytes(self._value)))
        self._field.clear()
        self._value.clear()

    def _end_head(self) -> None:
        self._events.append(_part(self._headers))
        self._headers = []

    def _end(self) -> None:
        self._is_closed = True


def _part(headers: list[tuple[bytes, bytes]]) -> Part:
    """The part with these headers. Section 4.8: fields other than these mean nothing."""
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
    if len(found) != len(parameters) + (extended is not None) or parameters.keys() != {"name", "filename"}:
        raise InvalidUpload("every part must be a file: Content-Disposition: form-data with one name and one filename")
    # Section 4.2 forbids `filename*`, but clients of .NET send it. Two names that differ are refused.
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
