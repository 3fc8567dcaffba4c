"""Types of all values on the wire: frozen records, proved texts, amounts, versions, times.

A *proved text* is a `str` whose type is the proof that it was parsed: `Amount`, `SemVer` here, `Address`,
`Signature`, `Cid` in their own modules. `parse` is the only way in from outside. `schema` is its JSON Schema,
`refuses` what `parse` raises.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Final, Self, cast

import msgspec

from muniment.protocol.errors import Invalid, InvalidAmount, InvalidBody, InvalidText, InvalidVersion

UINT256_MAX: Final = 2**256 - 1
# ECMA-262 section 21.4.1.1: the largest time value that a JavaScript Date can hold, which clients use.
TIMESTAMP_MS_MAX: Final = 8_640_000_000_000_000
# 9999-12-31T23:59:59.999Z, the last date-time of RFC 3339 and of the standard library.
DATED_MS_MAX: Final = 253_402_300_799_999
# A length that no honest version reaches; semver.org sets none.
VERSION_LENGTH_MAX: Final = 128

# semver.org 2.0.0, section "Is there a suggested regular expression", as a full ASCII match.
_SEMVER: Final = re.compile(
    r"(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)"
    r"(-(0|[1-9][0-9]*|[0-9]*[a-zA-Z-][0-9a-zA-Z-]*)(\.(0|[1-9][0-9]*|[0-9]*[a-zA-Z-][0-9a-zA-Z-]*))*)?"
    r"(\+[0-9a-zA-Z-]+(\.[0-9a-zA-Z-]+)*)?"
)
_AMOUNT: Final = re.compile(r"0|[1-9][0-9]{0,77}")
_MISSING: Final = re.compile(r"Object missing required field `(.+)`")
# How much of msgspec's words a message repeats: they can quote what was sent.
_DETAIL_LENGTH: Final = 200
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

    # Of a record with several forms (`muniment.protocol.forms`): the members that list records with as many forms.
    forms_inside: ClassVar[Mapping[str, tuple[type[Record], ...]]] = MappingProxyType({})


class ProvedText(str):
    """A checked text. Each subclass is one kind, and is made by `parse` alone."""

    __slots__ = ()

    schema: ClassVar[dict[str, Any]]
    refuses: ClassVar[type[Invalid]]

    @classmethod
    def parse(cls, text: str) -> Self:
        """Check `text` and return it in its canonical form, or raise the `Invalid` of its kind."""
        raise NotImplementedError


class BoundedText(ProvedText):
    """A text of `length_min` to `length_max` characters (not bytes) without U+0000, which PostgreSQL cannot store."""

    __slots__ = ()

    length_min: ClassVar[int]
    length_max: ClassVar[int]
    refuses = InvalidText

    def __init_subclass__(cls, *, length_max: int, example: str, length_min: int = 0, description: str = "") -> None:
        """Set the lengths of a kind, and make its JSON Schema."""
        cls.length_min, cls.length_max = length_min, length_max
        cls.schema = {
            "type": "string", **({"minLength": length_min} if length_min else {}), "maxLength": length_max,
            "pattern": r"^[^\u0000]*$", **({"description": description} if description else {}), "examples": [example],
        }  # fmt: skip

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises `InvalidText` for another length, and for U+0000."""
        if not cls.length_min <= len(text) <= cls.length_max:
            bounds = f"{cls.length_min} to {cls.length_max}" if cls.length_min else f"at most {cls.length_max}"
            raise InvalidText(f"a text of {bounds} characters is expected; this one has {len(text)}")
        if "\0" in text:
            raise InvalidText("the text has the character U+0000, which is not stored")
        return cls(text)


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
            raise InvalidAmount("an amount must be decimal digits without sign, exponent or leading zero")
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


def iso_time(timestamp_ms: int) -> str:
    """The date-time of the wire, `2026-11-20T19:48:00.123Z`: always milliseconds, always Z (RFC 3339)."""
    seconds, milliseconds = divmod(timestamp_ms, 1000)
    return f"{_iso_second(seconds)}.{milliseconds:03d}Z"


def moment(timestamp_ms: int) -> str:
    """A time as a date-time, or in words where it is later than the calendar: a trigger may start and end then."""
    return iso_time(timestamp_ms) if timestamp_ms <= DATED_MS_MAX else f"{timestamp_ms} ms after 1970"


def ms_of(text: str) -> int:
    """The milliseconds since 1970 of a `DateTime`, as `iso_time` writes it. Raises `ValueError`."""
    return (datetime.fromisoformat(text) - _EPOCH) // timedelta(milliseconds=1)


@lru_cache(maxsize=16)  # most written times are in the present second
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


def json_kind(value: object) -> str:
    """The JSON type of `value`, for messages."""
    kinds: dict[type, str] = {
        bool: "a boolean", int: "an integer", float: "a number", str: "a string",
        list: "an array", dict: "an object", type(None): "null",
    }  # fmt: skip
    return kinds.get(type(value), "something else")


def refusal_of(error: msgspec.ValidationError) -> Invalid:
    """An error of msgspec as a refusal with a JSON pointer; an `Invalid` of ours keeps its code."""
    text = str(error)
    detail, _, path = text.rpartition(" - at `")
    pointer = _pointer(path.rstrip("`")) if detail else ""
    if missing := _MISSING.fullmatch(detail or text):
        return InvalidBody(f"{missing[1]} is required", pointer=f"{pointer}/{missing[1]}")
    cause = error.__cause__
    if isinstance(cause, Invalid):
        return cause.under(pointer)
    return InvalidBody((detail or text)[:_DETAIL_LENGTH], pointer=pointer)


def _pointer(path: str) -> str:
    """msgspec's `$.config.topics[0]` as a JSON pointer (RFC 6901), `/config/topics/0`."""
    parts = cast("list[str]", re.findall(r"\.([^.\[\]]+)|\[([^\[\]]*)\]", path))
    return "".join(f"/{name or index}" for name, index in parts)
