"""What all values on the wire share: the frozen record, proved texts, amounts, versions, times.

A *proved text* is a `str` whose type is the proof that it was parsed: `Amount`, `SemVer` here, `Address`,
`Signature`, `Cid` in their own modules. `parse` is the only way in from outside. `schema` is its JSON Schema,
`refuses` what `parse` raises.
"""

from __future__ import annotations

import json
import math
import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Annotated, Any, ClassVar, Final, Self, cast

import msgspec

from muniment.errors import Invalid, InvalidAmount, InvalidBody, InvalidJson, InvalidTimestamp, InvalidVersion

UINT256_MAX: Final = 2**256 - 1
# ECMA-262 section 21.4.1.1: the largest time value that a JavaScript Date can hold, which clients use.
TIMESTAMP_MS_MAX: Final = 8_640_000_000_000_000
# A length that no honest version reaches; semver.org sets none.
VERSION_LENGTH_MAX: Final = 128
# RFC 8259 section 9 lets a parser set a limit; the deepest request of this interface has 7 levels.
JSON_DEPTH_MAX: Final = 64

# semver.org 2.0.0, section "Is there a suggested regular expression", as a full ASCII match.
_SEMVER: Final = re.compile(
    r"(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)"
    r"(-(0|[1-9][0-9]*|[0-9]*[a-zA-Z-][0-9a-zA-Z-]*)(\.(0|[1-9][0-9]*|[0-9]*[a-zA-Z-][0-9a-zA-Z-]*))*)?"
    r"(\+[0-9a-zA-Z-]+(\.[0-9a-zA-Z-]+)*)?"
)
_AMOUNT: Final = re.compile(r"0|[1-9][0-9]{0,77}")
_MISSING: Final = re.compile(r"Object missing required field `(.+)`")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


# A moment on the wire; `iso_time` writes it.
DateTime = Annotated[
    str,
    msgspec.Meta(
        title="DateTime",
        pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{3}Z$",
        description="ISO 8601, always milliseconds and Z",
        examples=["2026-11-20T19:48:00.123Z"],
        extra_json_schema={"format": "date-time"},
    ),
]


class Record(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """The base of every shape on the wire: immutable, camelCase members, built by keyword."""


class ProvedText(str):
    """A text that was checked. Subclasses say what for, and are made by `parse` alone."""

    __slots__ = ()

    schema: ClassVar[dict[str, Any]]
    refuses: ClassVar[type[Invalid]]

    @classmethod
    def parse(cls, text: str) -> Self:
        """Check `text` and return it in its canonical form, or raise the `Invalid` of its kind."""
        raise NotImplementedError


class Amount(ProvedText):
    """A non-negative integer in decimal, below 2^256, as text: JSON numbers lose digits in many clients."""

    __slots__ = ()

    schema: ClassVar[dict[str, Any]] = {
        "type": "string",
        "pattern": r"^(0|[1-9][0-9]{0,77})$",
        "maxLength": 78,
        "description": "A non-negative integer in decimal, at most 2^256 - 1",
        "examples": ["1000000000000000000"],
    }
    refuses = InvalidAmount

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises `InvalidAmount` for a sign, an exponent, a leading zero, other digits or 2^256 and more."""
        if not _AMOUNT.fullmatch(text):
            raise InvalidAmount("an amount is decimal digits without sign, exponent or leading zero")
        if int(text) > UINT256_MAX:
            raise InvalidAmount("an amount is at most 2^256 - 1")
        return cls(text)


class SemVer(ProvedText):
    """A semantic version (semver.org 2.0.0) of at most 128 characters."""

    __slots__ = ()

    schema: ClassVar[dict[str, Any]] = {
        "type": "string",
        "pattern": f"^{_SEMVER.pattern}$",
        "maxLength": VERSION_LENGTH_MAX,
        "description": "A semantic version (semver.org 2.0.0)",
        "examples": ["1.0.0"],
    }
    refuses = InvalidVersion

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises `InvalidVersion`."""
        if len(text) > VERSION_LENGTH_MAX:
            raise InvalidVersion(f"a version has at most {VERSION_LENGTH_MAX} characters")
        if not _SEMVER.fullmatch(text):
            raise InvalidVersion("not a semantic version such as 1.0.0 (semver.org 2.0.0)")
        return cls(text)


def check_timestamp_ms(value: object, what: str) -> int:
    """`value` as a time in milliseconds since 1970, or `InvalidTimestamp`. A JSON integer, never a boolean."""
    if type(value) is not int or not 0 <= value <= TIMESTAMP_MS_MAX:
        raise InvalidTimestamp(f"{what} is an integer of milliseconds since 1970, 0 to {TIMESTAMP_MS_MAX}")
    return value


def iso_time(timestamp_ms: int) -> str:
    """The date-time of the wire, `2026-11-20T19:48:00.123Z`: always milliseconds, always Z (RFC 3339)."""
    seconds, milliseconds = divmod(timestamp_ms, 1000)
    return f"{_iso_second(seconds)}.{milliseconds:03d}Z"


@lru_cache(maxsize=16)  # what is written now is of this second
def _iso_second(seconds: int) -> str:
    return (_EPOCH + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%S")


def decode_text(expected: type, value: object) -> Any:
    """The `dec_hook` of every decoder: texts prove themselves as they are decoded."""
    if issubclass(expected, ProvedText):
        if not isinstance(value, str):
            raise InvalidBody(f"expected a string, got {json_kind(value)}")
        return expected.parse(value)
    raise NotImplementedError(f"no decoder for {expected!r}")


def encode_text(value: object) -> str:
    """The `enc_hook` of every encoder: a proved text is written as the text it is."""
    if isinstance(value, str):
        return str(value)
    raise NotImplementedError(f"no encoder for {type(value)!r}")


_encoder: Final = msgspec.json.Encoder(enc_hook=encode_text)


def encode(value: object) -> bytes:
    """`value` as compact JSON in UTF-8."""
    return _encoder.encode(value)


def parse_json(data: bytes) -> Any:
    """One JSON text (RFC 8259) as Python values, members in their order; raises `InvalidJson`.

    Refused besides what is no JSON: a byte order mark, bytes that are not UTF-8, two members of one name in an
    object, NaN and Infinity, numbers beyond a double or of thousands of digits, lone surrogates, and more than
    `JSON_DEPTH_MAX` levels. NUL is a matter of the field it stands in.

    msgspec takes the last of two members silently, and is three times as fast as a decoder that can be told not
    to. What it reads and writes again to the same bytes, white space aside, has no second members; such is the JSON
    of most clients.
    """
    # Each bracket opens at most one level, inside strings none: most texts are shallow without a closer look.
    if data.count(b"{") + data.count(b"[") > JSON_DEPTH_MAX:
        _check_depth(data)
    try:
        value = _compact.decode(data)
        written = _encoder.encode(value)
        if written == data or written == msgspec.json.format(data, indent=-1):
            return value
        return _parse_strictly(data)
    except (msgspec.MsgspecError, ValueError, OverflowError):
        return _parse_strictly(data)


def _parse_strictly(data: bytes) -> Any:
    """`parse_json` but for the depth: names what is wrong, and takes more than compact JSON."""
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise InvalidJson(f"not UTF-8 at byte {error.start}") from error
    if text.startswith("\ufeff"):
        raise InvalidJson("begins with a byte order mark (RFC 8259 section 8.1)")
    value = _decode_json(text)
    if _SURROGATE_ESCAPE.search(text):
        _check_surrogates(value)
    return value


def _decode_json(text: str) -> Any:
    """What the standard decoder makes of `text`, with each of its errors as `InvalidJson`."""
    try:
        return _json.decode(text)
    except Invalid:
        raise
    except json.JSONDecodeError as error:
        raise InvalidJson(f"not JSON: {error.msg} at line {error.lineno} column {error.colno}") from error
    except ValueError as error:  # int() refuses to read thousands of digits
        raise InvalidJson("a number has too many digits") from error


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        seen: set[str] = set()
        name = next(name for name, _ in pairs if name in seen or seen.add(name))
        raise InvalidJson(f"an object has two members named {json.dumps(name[:40])}")
    return members


def _constant(name: str) -> None:
    raise InvalidJson(f"{name} is not JSON")


def _double(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise InvalidJson("a number is too large")
    return number


_json: Final = json.JSONDecoder(object_pairs_hook=_members, parse_constant=_constant, parse_float=_double)
_compact: Final = msgspec.json.Decoder()
_STRING: Final = re.compile(rb'"(?:[^"\\]|\\.)*+"', re.DOTALL)
_EMPTY: Final = re.compile(rb"\{\}|\[\]")
_NOT_BRACKETS: Final = bytes(byte for byte in range(256) if byte not in b"{}[]")
_SURROGATE_ESCAPE: Final = re.compile(r"\\u[dD][89a-fA-F]")


def _check_depth(data: bytes) -> None:
    """Refuse more levels than `JSON_DEPTH_MAX` before any decoder sees them.

    Decoders recurse, and trust a limit of the interpreter that any package may raise. Strings go, then all but the
    brackets, then the innermost level at each turn.
    """
    brackets = _STRING.sub(b"", data).translate(None, _NOT_BRACKETS)
    for _ in range(JSON_DEPTH_MAX):
        outer = _EMPTY.sub(b"", brackets)
        if outer == brackets:
            break
        brackets = outer
    if _EMPTY.search(brackets) or len(brackets) > JSON_DEPTH_MAX:
        raise InvalidJson(f"nested deeper than {JSON_DEPTH_MAX} levels")


def _check_surrogates(value: object) -> None:
    r"""Refuse half a surrogate pair, written as an escape like `\ud800`: it is no character (Unicode D75)."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise InvalidJson("a string has half a surrogate pair, which is no character") from error


def json_kind(value: object) -> str:
    """What JSON calls the type of `value`, for messages."""
    kinds: dict[type, str] = {
        bool: "a boolean", int: "an integer", float: "a number", str: "a string",
        list: "an array", dict: "an object", type(None): "null",
    }  # fmt: skip
    return kinds.get(type(value), "something else")


def refusal_of(error: msgspec.ValidationError) -> Invalid:
    """What msgspec found wrong, as a refusal with a JSON pointer; an `Invalid` of ours keeps its code."""
    text = str(error)
    detail, _, path = text.rpartition(" - at `")
    pointer = _pointer(path.rstrip("`")) if detail else ""
    if missing := _MISSING.fullmatch(detail or text):
        return InvalidBody(f"{missing[1]} is required", pointer=f"{pointer}/{missing[1]}")
    cause = error.__cause__
    if isinstance(cause, Invalid):
        return cause.under(pointer)
    return InvalidBody(detail or text, pointer=pointer)


def _pointer(path: str) -> str:
    """msgspec's `$.config.topics[0]` as a JSON pointer (RFC 6901), `/config/topics/0`."""
    parts = cast("list[str]", re.findall(r"\.([^.\[\]]+)|\[([^\]]*)\]", path))
    return "".join(f"/{name or index}" for name, index in parts)
