"""Query strings as frozen records: each parameter in its exact form, within its bounds.

A parameter comes at most once, except for lists: `a,b` (written by hand) and `name=a&name=b` (most generated clients)
may be mixed.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar
from urllib.parse import parse_qsl

import msgspec
from msgspec.inspect import (
    BoolType,
    CustomType,
    IntType,
    ListType,
    LiteralType,
    Metadata,
    StructType,
    Type,
    UnionType,
    type_info,
)

from muniment.protocol.errors import Fault, Invalid, InvalidParameter
from muniment.protocol.wire import Record, decode_text, refusal_of
from muniment.service.http.request import BROKEN_ESCAPE, invalid_parameter

R = TypeVar("R", bound=Record)

# The digits of 2^64: every longer number is out of range.
_INTEGER: Final = re.compile(r"0|-?[1-9][0-9]{0,19}")
# More parameters than any operation has, with a list of a hundred elements.
_PARAMETERS_MAX: Final = 200
# Elements of a comma-separated list before it is split; lists have smaller limits of their own.
_LIST_ELEMENTS_MAX: Final = 1_000
# Cached queries of each listing: under a kilobyte each, even with all filters.
_QUERIES_KEPT: Final = 1_024
_KEPT_BYTES_MAX: Final = 512


class QueryReader(Generic[R]):
    """Reads query strings into one type of record."""

    def __init__(self, kind: type[R]) -> None:
        """Prepare a converter for each field of `kind`."""
        info = type_info(kind)
        assert isinstance(info, StructType)  # noqa: S101 - checks our own declarations, at import
        self._kind = kind
        self._convert = {field.encode_name: _converter(field.type) for field in info.fields}
        self._kept: dict[bytes, R] = {}

    def read(self, query: bytes) -> R:
        """The record in `query`; unknown parameters are ignored. Raises `InvalidParameter` or a related refusal.

        Wallets and relayers repeat the same queries, so short ones are cached.
        """
        if (kept := self._kept.get(query)) is not None:
            return kept
        record = self._read(query)
        if len(query) <= _KEPT_BYTES_MAX:
            if len(self._kept) >= _QUERIES_KEPT:
                self._kept.clear()
            self._kept[query] = record
        return record

    def _read(self, query: bytes) -> R:
        values: dict[str, Any] = {}
        for name, text in _pairs(query):
            convert = self._convert.get(name)
            if convert is None:
                continue
            value = convert(name, text)
            if name not in values:
                values[name] = value
            elif convert is _elements:
                values[name] += value
            else:
                raise invalid_parameter(name, "was given more than once")
        try:
            return msgspec.convert(values, self._kind, dec_hook=decode_text)
        except msgspec.ValidationError as error:
            raise _about_parameter(refusal_of(error)) from error


def _pairs(query: bytes) -> list[tuple[str, str]]:
    text = query.decode("latin-1")
    if "%" in text and BROKEN_ESCAPE.search(text):
        raise InvalidParameter(
            "the query string has a % without two hexadecimal digits after it; send %25 for the character %"
        )
    try:
        return parse_qsl(query.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=_PARAMETERS_MAX)
    except UnicodeDecodeError:
        raise InvalidParameter("the query string is not percent-encoded UTF-8") from None
    except ValueError:
        raise InvalidParameter(f"the query string has more than {_PARAMETERS_MAX} parameters") from None


def _about_parameter(refusal: Invalid) -> Invalid:
    """The refusal of a parameter, from a pointer into the record."""
    if refusal.faults[0].parameter is not None:
        return refusal
    pointer = refusal.faults[0].pointer or ""
    name, _, index = pointer.removeprefix("/").partition("/")
    element = f" (element {int(index) + 1})" if index.isdecimal() else ""
    what = f"{refusal.detail}{element}"
    kind = InvalidParameter if refusal.code == "invalid-body" else type(refusal)
    return kind(f"{name}: {what}", faults=[Fault(what, parameter=name)])


def _converter(kind: Type) -> Callable[[str, str], Any]:
    if isinstance(kind, Metadata):
        return _converter(kind.type)
    if isinstance(kind, UnionType):
        return _converter(next(each for each in kind.types if not isinstance(each, msgspec.inspect.NoneType)))
    if isinstance(kind, IntType) or (isinstance(kind, LiteralType) and all(type(v) is int for v in kind.values)):
        return _integer
    if isinstance(kind, BoolType):
        return _boolean
    if isinstance(kind, ListType):
        return _elements
    assert isinstance(kind, (CustomType, msgspec.inspect.StrType, LiteralType)), kind  # noqa: S101 - checks our own declarations, at import
    return lambda _, text: text


def _integer(name: str, text: str) -> int:
    if not _INTEGER.fullmatch(text):
        raise invalid_parameter(name, "is not an integer in decimal digits")
    return int(text)


def _boolean(name: str, text: str) -> bool:
    if text not in {"true", "false"}:
        raise invalid_parameter(name, "is either true or false")
    return text == "true"


def _elements(name: str, text: str) -> list[str]:
    if text.count(",") >= _LIST_ELEMENTS_MAX:
        raise invalid_parameter(name, "has too many elements")
    return text.split(",")
