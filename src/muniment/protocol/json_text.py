"""JSON texts from outside, as strict as they can be read, in time that is linear in their length."""

from __future__ import annotations

import json
import re
from itertools import accumulate
from typing import Any, Final

import msgspec

from muniment.protocol.errors import InvalidJson

# RFC 8259 section 9 lets a parser set a limit; the deepest request of this interface has 7 levels.
JSON_DEPTH_MAX: Final = 64
# Decoding and encoding a number of that kind takes ten microseconds, of other kinds a tenth of one. No value of the
# interface is such a number; RFC 8259 sections 6 and 9 let a parser limit them.
_WIDE_EXPONENTS_MAX: Final = 1_000
_LONG_DIGITS: Final = b"0" * 100
_LONG_DIGITS_MAX: Final = 60
# An array or object takes a quarter of a microsecond and sixty bytes. Honest ones have more than sixteen bytes of text.
_CONTAINERS_FREE: Final = 6_000
_BYTES_PER_CONTAINER: Final = 16
# A text of this size cannot have more than any of these limits.
_CHEAP_BYTES_MAX: Final = 6_000
# Brackets, digits and exponents of either spelling become one of each.
_KINDS: Final = bytes.maketrans(b"{}123456789E+", b"[]000000000e-")
# A bracket as the step in depth that it makes, in one signed byte: 1 or -1.
_STEPS: Final = bytes.maketrans(b"[]", b"\x01\xff")
_NEITHER_BRACKETS_NOR_QUOTES: Final = bytes(byte for byte in range(256) if byte not in b'[]{}"')
# Bytes of a text that are searched again for the cause of an error: a millisecond at this size.
_SEARCHED_BYTES_MAX: Final = 16 * 1024
_NAME_SHOWN: Final = 40
# Half a surrogate pair (Unicode D75), once the escaped backslashes are gone.
_HALF_PAIR: Final = re.compile(
    rb"\\u[dD](?:[89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])|(?<!\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD])[c-fC-F])"
)

_decoder: Final = msgspec.json.Decoder()
_encoder: Final = msgspec.json.Encoder()


def parse_json(data: bytes) -> Any:
    """One JSON text (RFC 8259) as Python values, members in their order; raises `InvalidJson`.

    Refuses malformed JSON, a byte order mark, bytes that are not UTF-8, two members of one name in an
    object, NaN and Infinity, numbers beyond a double or of thousands of digits, lone surrogates, more than
    `JSON_DEPTH_MAX` levels, and what `_check_cost` refuses. Each field decides about NUL itself.

    The time is linear in the length of any text; decision 0023 says how.
    """
    # Each bracket opens at most one level, inside strings none: most texts are shallow without a closer look.
    if len(data) > _CHEAP_BYTES_MAX or data.count(b"{") + data.count(b"[") > JSON_DEPTH_MAX:
        _check_cost(data)
    try:
        value = _decoder.decode(data)
        written = _encoder.encode(value)
    except (msgspec.MsgspecError, ValueError) as error:  # ValueError: bytes in a string that are not UTF-8
        raise InvalidJson(_fault(data, str(error))) from error
    # msgspec takes the last of two members silently. A colon outside of strings is a member: where all were taken,
    # what is written again has as many. Most clients write as msgspec does, and nothing has to be counted.
    if written != data and _members(written) != _members(data):
        raise InvalidJson(f"an object has two members {_repeated_name(data)}")
    return value


def _outside_strings(data: bytes, without: bytes = b"") -> bytes:
    """`data` without its strings, and without the bytes `without`; where a string is not closed, without the rest."""
    if b"\\" in data:  # one byte is found much faster than two are
        data = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    unescaped = data.translate(None, without)
    # Strings that are empty now are removed in one call. Where only brackets are kept, most strings are empty.
    return b"".join(unescaped.replace(b'""', b"").split(b'"')[::2])


def _check_cost(data: bytes) -> None:
    """Refuse texts that are slow to decode or too deep for recursive decoders; `data` need not be JSON."""
    brackets = _outside_strings(data, _NEITHER_BRACKETS_NOR_QUOTES).translate(_KINDS)
    opened = brackets.count(b"[")
    if opened > JSON_DEPTH_MAX:
        _check_depth(brackets)
    if opened > _CONTAINERS_FREE + len(data) // _BYTES_PER_CONTAINER:
        raise InvalidJson(f"more than one array or object for each {_BYTES_PER_CONTAINER} bytes")
    # To leave out the strings takes longer than to count in the whole text, which seldom has too many.
    if _slow_numbers(data) and (fault := _slow_numbers(_outside_strings(data))):
        raise InvalidJson(fault)


def _slow_numbers(text: bytes) -> str:
    """What makes the numbers in `text` slow to decode; empty if nothing does."""
    kinds = text.translate(_KINDS)
    if kinds.count(b"e000") + kinds.count(b"e-000") > _WIDE_EXPONENTS_MAX:
        return f"more than {_WIDE_EXPONENTS_MAX} numbers have an exponent of three digits"
    return "too many numbers have a hundred digits" if kinds.count(_LONG_DIGITS) > _LONG_DIGITS_MAX else ""


def _check_depth(brackets: bytes) -> None:
    """Decoders recurse, and trust a limit of the interpreter that any package may raise."""
    steps = memoryview(brackets.translate(_STEPS)).cast("b")
    if max(accumulate(steps), default=0) > JSON_DEPTH_MAX:
        raise InvalidJson(f"nested deeper than {JSON_DEPTH_MAX} levels")


def _members(data: bytes) -> int:
    """The number of members in all objects of a JSON text."""
    return _outside_strings(data).count(b":")


def _fault(data: bytes, error: str) -> str:
    """The fault of `data`, for which msgspec reports `error`."""
    if data.startswith(b"\xef\xbb\xbf"):
        return "begins with a byte order mark (RFC 8259 section 8.1)"
    try:
        data.decode()
    except UnicodeDecodeError as undecodable:
        return f"not UTF-8 at byte {undecodable.start}"
    if error.startswith("Number out of range"):
        return "a number is too large"
    if error.startswith("Integer value out of range"):
        return "a number has too many digits"
    if _HALF_PAIR.search(data.replace(b"\\\\", b"-")):
        return "a string has half a surrogate pair, which is not a character"
    outside = _outside_strings(data[:_SEARCHED_BYTES_MAX])
    if b"NaN" in outside or b"Infinity" in outside:
        return "NaN and Infinity are not JSON"
    return f"not JSON: {error.removeprefix('JSON is malformed: ')}"


def _repeated_name(data: bytes) -> str:
    """The first name that an object of `data` has twice, as a message shows it."""

    def look(pairs: list[tuple[str, Any]]) -> None:
        seen: set[str] = set()
        repeated.extend(name for name, _ in pairs if name in seen or seen.add(name))

    repeated: list[str] = []
    if len(data) <= _SEARCHED_BYTES_MAX:
        json.loads(data, object_pairs_hook=look)
    return f"named {json.dumps(repeated[0][:_NAME_SHOWN])}" if repeated else "of the same name"
