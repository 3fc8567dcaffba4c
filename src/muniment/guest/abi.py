"""ABI of contracts by the text of a type, for `evm._encode` and `evm._decode` (Solidity, Contract ABI Specification).

The values of guests are texts. What eth-abi does with them is bounded here: how deep types nest, how long they are, and
the steps that decoding takes, since data may point to one place many times.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, cast

import msgspec
from eth_abi.codec import ABIDecoder, ABIEncoder
from eth_abi.decoding import AddressDecoder, BytesDecoder, ByteStringDecoder, ContextFramesBytesIO
from eth_abi.exceptions import InsufficientDataBytes
from eth_abi.registry import ABIRegistry, BaseEquals, registry

from muniment.guest.limits import ABI_DEPTH_MAX, ABI_STEPS_MAX, ABI_TYPE_LENGTH_MAX, TEXT_LENGTH_MAX
from muniment.guest.outcomes import Stop
from muniment.protocol.errors import InvalidJson
from muniment.protocol.json_text import parse_json

_WORD: Final = re.compile(r"([a-z]+)([0-9]*)")
# Base types and the numbers that may follow them.
_SIZES: Final = {
    "uint": frozenset(range(8, 257, 8)), "int": frozenset(range(8, 257, 8)), "bytes": frozenset(range(1, 33)),
    "address": frozenset[int](), "bool": frozenset[int](), "string": frozenset[int](),
}  # fmt: skip
_DIMENSION: Final = re.compile(r"\[([1-9][0-9]{0,4})?\]")
_INTEGER: Final = re.compile(r"-?[0-9]{1,78}")
_HEX: Final = re.compile(r"(?:0x)?((?:[0-9a-fA-F]{2})*)")
_ADDRESS_BYTES: Final = 20
_WORD_BYTES: Final = 32
# Characters of a text that a message quotes.
_SHOWN: Final = 60


class _Type(NamedTuple):
    """A type: `text` has the full names of integers. `parts` are the members of a tuple, or the item of an array."""

    text: str
    parts: tuple[_Type, ...] = ()
    # Of an array: its length, 0 if that is in the data. None for what is no array.
    length: int | None = None

    @property
    def dynamic(self) -> bool:
        """Whether it is encoded by offset."""
        return self.text in ("string", "bytes") or self.length == 0 or any(part.dynamic for part in self.parts)


# The item of an empty array whose type is not told: its bytes are the same whatever it would hold.
_UNKNOWN: Final = _Type("?")


class _Value(NamedTuple):
    """A value to encode, as eth-abi takes it, and its type."""

    type: _Type
    value: Any


class _CountedStream(ContextFramesBytesIO):
    """Data that are decoded; each read is a step for each word, so that the steps of hostile data end."""

    def __init__(self, spend: Callable[[int], None], data: bytes) -> None:
        super().__init__(data)  # pyright: ignore[reportUnknownMemberType] - its arguments have no types
        self._spend = spend

    def read(self, size: int | None = -1, /) -> bytes:
        """Read as `io.BytesIO` does."""
        data = super().read(size)
        self._spend(1 + len(data) // _WORD_BYTES)
        return data


class _BytesDecoder(ByteStringDecoder):
    """Bytes whose padding may be anything or be missing, as contracts take them, but whose data are whole."""

    def read_data_from_stream(self, stream: ContextFramesBytesIO) -> bytes:
        """The bytes; `stream` is at their length."""
        length = int.from_bytes(stream.read(_WORD_BYTES), "big")
        data = stream.read(length)
        if len(data) < length:
            raise InsufficientDataBytes(f"{length} bytes, of which {len(data)} are there")
        return data


class _AddressDecoder(AddressDecoder):
    """An address whose padding may be anything, as viem, ethers and contracts before Solidity 0.8 take it."""

    def validate_padding_bytes(self, value: Any, padding_bytes: bytes) -> None:
        """Take any."""


class _FixedBytesDecoder(BytesDecoder):
    """`bytesN` whose padding may be anything, as `_AddressDecoder` takes it."""

    def validate_padding_bytes(self, value: Any, padding_bytes: bytes) -> None:
        """Take any."""


def _registry() -> ABIRegistry:
    decoders = registry.copy()
    for label in ("address", "bytes<M>", "bytes"):
        decoders.unregister_decoder(label)
    decoders.register_decoder(BaseEquals("address"), _AddressDecoder, label="address")
    decoders.register_decoder(BaseEquals("bytes", with_sub=True), _FixedBytesDecoder, label="bytes<M>")
    decoders.register_decoder(BaseEquals("bytes", with_sub=False), _BytesDecoder, label="bytes")
    return decoders


class Abi:
    """The codec of one run, which counts the steps of the run."""

    def __init__(self) -> None:
        self._steps_left = ABI_STEPS_MAX
        self._encoder = ABIEncoder(registry)
        self._decoder = ABIDecoder(_registry())
        self._decoder.stream_class = cast("Any", partial(_CountedStream, self._spend))

    def encode(self, text: str) -> str:
        """The hex, without 0x, of a JSON list of `{"abiType", "value"}`. Raises `Stop`.

        The value of a tuple or array is the JSON text of such a list; a tuple may be declared as `()`. Strings, bytes
        and bool are hex, integers decimal.
        """
        values = [self._value(each, 0) for each in _list(_json(text))]
        return self._encode(values).hex()

    def _encode(self, values: Sequence[_Value]) -> bytes:
        # A string is encoded as the bytes that it was given as.
        types = [each.type.text.replace("string", "bytes").replace(_UNKNOWN.text, "bytes") for each in values]
        try:
            return self._encoder.encode(types, [each.value for each in values])
        except Exception as error:  # eth-abi and what it calls have many
            raise Stop("bad-argument", f"{_quoted(','.join(types))}: {_quoted(str(error))}") from error

    def _value(self, param: object, depth: int) -> _Value:
        text, value = _param(param)
        self._spend(1)
        _check_depth(depth)
        if text.endswith("]"):
            return self._array(text, value, depth)
        if text.startswith("("):
            values = [self._value(each, depth + 1) for each in _list(_json(value))]
            kind = _tuple_of([each.type for each in values])
            return _Value(self._declared(text, kind), tuple(each.value for each in values))
        kind = self._type(text)
        return _Value(kind, _from_text(kind.text, value))

    def _array(self, text: str, value: str, depth: int) -> _Value:
        item, bracket, dimension = text.rpartition("[")
        if not _DIMENSION.fullmatch(bracket + dimension):
            raise Stop("bad-argument", f"{_quoted(text)} is not a type")
        values = [self._value(each, depth + 1) for each in _list(_json(value))]
        length = int(dimension[:-1] or 0)
        if length and len(values) != length:
            raise Stop("bad-argument", f"{len(values)} values for {_quoted(text)}")
        found = _UNKNOWN
        for each in values:
            found = _merged(found, each.type)
        return _Value(_array_of(self._declared(item, found), length), [each.value for each in values])

    def _declared(self, text: str, found: _Type) -> _Type:
        """The type `text`; if it tells what its tuples hold, the values must be of that type. Raises `Stop`."""
        return found if "()" in text else _merged(self._type(text), found)

    def decode(self, text: str) -> str:
        """The value of `{"abiType", "value"}` as text. Raises `Stop`, also where data are short.

        Tuples and arrays become JSON lists of texts. A tuple with dynamic members may stand with its offset, as a
        struct is returned, or without, as several values are; what can be read as both is what encodes to these bytes,
        or, where padding is not zero, to the most similar ones.
        """
        given, value = _param(_json(text))
        kind, data = self._type(given), _bytes(value)
        return _shown(kind, self._decode(kind, data))

    def _decode(self, kind: _Type, data: bytes) -> Any:
        if not kind.text.startswith("(") or kind.length is not None or not kind.dynamic:
            return self._read((kind,), data)[0]
        readings: list[tuple[int, Any]] = []
        failure: Stop | None = None
        for types, whole in (((kind,), False), (kind.parts, True)):
            try:
                values = self._read(types, data)
            except Stop as stop:
                if stop.reason != "bad-argument":
                    raise
                failure = stop
                continue
            encoded = self._encode([_Value(each, value) for each, value in zip(types, values, strict=True)])
            reading, apart = values if whole else values[0], _words_apart(encoded, data)
            if not apart:
                return reading
            readings.append((apart, reading))
        if not readings and failure:
            raise failure
        return min(readings, key=lambda each: each[0])[1]

    def _read(self, types: Sequence[_Type], data: bytes) -> tuple[Any, ...]:
        texts = [each.text.replace("string", "bytes") for each in types]
        try:
            return self._decoder.decode(texts, data)
        except Stop:
            raise
        except Exception as error:  # eth-abi and what it calls have many
            raise Stop("bad-argument", f"not {_quoted(','.join(texts))}: {_quoted(str(error))}") from error

    def _type(self, text: str) -> _Type:
        if len(text) > ABI_TYPE_LENGTH_MAX:
            raise Stop("limit-abi", f"a type of {len(text)} characters; {ABI_TYPE_LENGTH_MAX} are taken")
        self._spend(10 * len(text))
        kind, end = _parse(text, 0, 0)
        if end != len(text):
            raise Stop("bad-argument", f"{_quoted(text)} is not a type")
        return kind

    def _spend(self, steps: int) -> None:
        self._steps_left -= steps
        if self._steps_left < 0:
            raise Stop("limit-abi", f"more than {ABI_STEPS_MAX} steps of encoding and decoding")


def _words_apart(one: bytes, other: bytes) -> int:
    """How many words of 32 bytes differ."""
    places = range(0, max(len(one), len(other)), _WORD_BYTES)
    return sum(one[at : at + _WORD_BYTES] != other[at : at + _WORD_BYTES] for at in places)


def _parse(text: str, at: int, depth: int) -> tuple[_Type, int]:
    """The type that begins at `at`, and where it ends."""
    _check_depth(depth)
    if text.startswith("(", at):
        kind, at = _parse_tuple(text, at, depth)
    else:
        kind, at = _parse_word(text, at)
    while dimension := _DIMENSION.match(text, at):
        depth += 1
        _check_depth(depth)
        kind, at = _array_of(kind, int(dimension[1] or 0)), dimension.end()
    return kind, at


def _parse_word(text: str, at: int) -> tuple[_Type, int]:
    word = _WORD.match(text, at)
    sizes = _SIZES.get(word[1]) if word else None
    if word is None or sizes is None or (word[2] and (word[2][0] == "0" or int(word[2][:4]) not in sizes)):
        raise Stop("bad-argument", f"{_quoted(text)} is not a type")
    return _Type(f"{word[0]}256" if word[0] in ("uint", "int") else word[0]), word.end()


def _parse_tuple(text: str, at: int, depth: int) -> tuple[_Type, int]:
    members: list[_Type] = []
    while True:
        member, at = _parse(text, at + 1, depth + 1)
        members.append(member)
        if not text.startswith((",", ")"), at):
            raise Stop("bad-argument", f"{_quoted(text)} is not a type")
        if text.startswith(")", at):
            return _tuple_of(members), at + 1


def _tuple_of(members: Sequence[_Type]) -> _Type:
    if not members:
        raise Stop("bad-argument", "a tuple without members")
    return _Type(f"({','.join(each.text for each in members)})", tuple(members))


def _array_of(item: _Type, length: int) -> _Type:
    return _Type(f"{item.text}[{length or ''}]", (item,), length)


def _merged(one: _Type, other: _Type) -> _Type:
    """The type of values that are said to be of both; what one does not know, the other may."""
    if one.text == other.text or other is _UNKNOWN:
        return one
    if one is _UNKNOWN:
        return other
    if one.length != other.length or not one.parts or len(one.parts) != len(other.parts):
        raise Stop("bad-argument", f"a value is {_quoted(other.text)}, not {_quoted(one.text)}")
    parts = [_merged(each, its) for each, its in zip(one.parts, other.parts, strict=True)]
    return _tuple_of(parts) if one.length is None else _array_of(parts[0], one.length)


def _check_depth(depth: int) -> None:
    if depth > ABI_DEPTH_MAX:
        raise Stop("limit-abi", f"types that nest more than {ABI_DEPTH_MAX} deep")


def _from_text(kind: str, text: str) -> Any:
    """A value of a type that has no parts, as eth-abi takes it."""
    if kind.startswith(("uint", "int")):
        if not _INTEGER.fullmatch(text):
            raise Stop("bad-argument", f"{_quoted(text)} is not a decimal integer")
        return int(text)
    data = _bytes(text)
    if kind == "bool":
        number = int.from_bytes(data, "big")
        if number > 1 or not data:
            raise Stop("bad-argument", f"{_quoted(text)} is not a bool: 0x00 or 0x01")
        return bool(number)
    if kind == "address":
        if len(data) != _ADDRESS_BYTES:
            raise Stop("bad-argument", f"{_quoted(text)} is not an address")
        return f"0x{data.hex()}"
    return data


def _shown(kind: _Type, value: Any) -> str:
    """A decoded value as text."""
    if kind.parts:
        kinds = kind.parts if kind.length is None else kind.parts * len(value)
        texts = [_shown(part, each) for part, each in zip(kinds, value, strict=True)]
        shown = msgspec.json.encode(texts).decode()
        if len(shown) > TEXT_LENGTH_MAX:
            raise Stop("limit-text", f"a decoded text of {len(shown)} characters; {TEXT_LENGTH_MAX} are given")
        return shown
    if kind.text == "bool":
        return "0x01" if value else "0x00"
    if kind.text == "string":
        return cast("bytes", value).decode("utf-8", "replace")
    if kind.text.startswith("bytes"):
        return f"0x{value.hex()}"
    return str(value).lower()


def _param(param: object) -> tuple[str, str]:
    """Type and value of a `{"abiType", "value"}`."""
    if isinstance(param, dict):
        members = cast("dict[str, object]", param)
        text, value = members.get("abiType"), members.get("value")
        if isinstance(text, str) and isinstance(value, str):
            return text, value
    raise Stop("bad-argument", "expected an object with the texts abiType and value")


def _json(text: str) -> object:
    try:
        return parse_json(text.encode())
    except InvalidJson as error:
        raise Stop("bad-argument", f"expected JSON: {error.detail}") from error


def _list(value: object) -> list[object]:
    if not isinstance(value, list):
        raise Stop("bad-argument", "expected a list of objects with abiType and value")
    return cast("list[object]", value)


def _bytes(text: str) -> bytes:
    digits = _HEX.fullmatch(text)
    if digits is None:
        raise Stop("bad-argument", f"{_quoted(text)} is not hex with an even number of digits")
    return bytes.fromhex(digits[1])


def _quoted(text: str) -> str:
    return ascii(text[:_SHOWN])
