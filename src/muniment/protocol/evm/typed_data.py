"""EIP-712 typed structured data, read strictly: a request is hashed exactly as it is, or refused.

Definitions are compiled into functions. The functions are cached, because all requests of a client have the same
definitions. No ABI encoder is needed: a struct is one hash over its type hash and 32 bytes per member.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any, Final, cast

import msgspec

from muniment.protocol.errors import InvalidTypedData
from muniment.protocol.evm.hashing import keccak256
from muniment.protocol.evm.struct_types import NODES_MAX, Member, is_identifier, read_types
from muniment.protocol.evm.words import WORDS, Encode, Misfit
from muniment.protocol.wire import Record, json_kind

# One entry takes about 10 kB for a dozen members, and at most about 60 kB: 30 MB when full of the largest entries.
_ENCODERS_KEPT: Final = 512
# Larger definitions are compiled each time: no known client sends them, and the cache stays small.
KEPT_KEY_BYTES_MAX: Final = 8_192

_encoder: Final = msgspec.json.Encoder()
_DOMAIN_TYPE_HASH: Final = keccak256(b"EIP712Domain(string name,string version)")


class Domain(Record, frozen=True):
    """An EIP-712 domain of name and version only, without chain, contract or salt."""

    name: str
    version: str

    @property
    def separator(self) -> bytes:
        """EIP-712 `domainSeparator`, 32 bytes."""
        return _separator(self.name, self.version)


class Struct:
    """A compiled struct: `encode` is its EIP-712 `hashStruct`, and raises `Misfit`.

    Each of `members` is a name, a type word and an encoder; `holds` are the structs among their types. `hashed` is the
    hash function; `keccak256_kept` caches the hashes. `definitions` has the text of each struct in `encode_type`.
    """

    __slots__ = ("definitions", "encode", "encode_type", "name", "type_hash")

    def __init__(
        self,
        name: str,
        members: Iterable[tuple[str, str, Encode]],
        holds: Iterable[Struct] = (),
        hashed: Callable[[bytes], bytes] = keccak256,
    ) -> None:
        members = tuple(members)
        self.name: Final = name
        own = f"{name}({','.join(f'{word} {member}' for member, word, _ in members)})"
        needed: dict[str, str] = {}
        for struct in holds:
            needed.update(struct.definitions)
        self.definitions: Final = {name: own, **needed}
        # EIP-712 `encodeType`: the struct, then the structs that it refers to, sorted by name.
        self.encode_type: Final = own + "".join([needed[struct] for struct in sorted(needed)])
        self.type_hash: Final = keccak256(self.encode_type.encode("ascii"))
        self.encode: Final = _struct(self.type_hash, tuple((member, encode) for member, _, encode in members), hashed)


class Encoder:
    """The compiled definitions of one primary type."""

    __slots__ = ("_encode", "_open_ended", "encode_type", "primary", "type_hash")

    def __init__(self, struct: Struct) -> None:
        self.primary: Final = struct.name
        self.encode_type: Final = struct.encode_type
        self.type_hash: Final = struct.type_hash
        self._encode: Final = struct.encode
        # Whether there is a dynamic array. Without one, the number of values is known to be within `NODES_MAX`.
        self._open_ended: Final = "[]" in struct.encode_type

    def struct_hash(self, values: object) -> bytes:
        """EIP-712 `hashStruct` of `values`, 32 bytes.

        Raises `InvalidTypedData` with a pointer that begins at `/values` when a value does not fit its type exactly, a
        member is missing or unknown, or there are more than `NODES_MAX` values.
        """
        try:
            if self._open_ended:
                _check_count(values)
            return self._encode(values)
        except Misfit as misfit:
            raise InvalidTypedData(misfit.detail, pointer="/values" + misfit.pointer) from None


def compile_types(types: object, primary: str) -> Encoder:
    """The encoder for the struct `primary` of `types`, which is JSON: `{struct: [{"name", "type"}, …]}`.

    Raises `InvalidTypedData` with a pointer that begins at `/types`; see `struct_types` for the rules.
    """
    key = types_key(types)
    if len(key) > KEPT_KEY_BYTES_MAX:
        return _compile(types, primary)
    return _kept(key, primary)


def types_key(types: object) -> bytes:
    """`types` as compact JSON, a cache key. Raises `InvalidTypedData` if it is not JSON."""
    try:
        return _encoder.encode(types)
    except (TypeError, ValueError, OverflowError, RecursionError):
        raise InvalidTypedData("types is an object of struct definitions", pointer="/types") from None


def digest(domain: Domain, struct_hash: bytes) -> bytes:
    """The digest to sign: EIP-191 version 0x01 over the domain separator and the struct hash."""
    return keccak256(b"\x19\x01" + domain.separator + struct_hash)


@lru_cache(maxsize=_ENCODERS_KEPT)
def _kept(key: bytes, primary: str) -> Encoder:
    return _compile(msgspec.json.decode(key), primary)


@lru_cache(maxsize=16)  # one registry has one domain
def _separator(name: str, version: str) -> bytes:
    return keccak256(_DOMAIN_TYPE_HASH + keccak256(name.encode()) + keccak256(version.encode()))


def _compile(types: object, primary: str) -> Encoder:
    read = read_types(types, primary)
    structs: dict[str, Struct] = {}
    encoders: dict[str, Encode] = {}
    for name in read.leaves_first:
        members = read.members[name]
        holds = [structs[each.base] for each in members if each.base in structs]
        structs[name] = Struct(name, [(each.name, each.type, encoder_of(each, encoders)) for each in members], holds)
        encoders[name] = structs[name].encode
    return Encoder(structs[primary])


def encoder_of(member: Member, structs: Mapping[str, Encode]) -> Encode:
    """EIP-712 `encodeData` of a member; `structs` are the encoders of the structs that it may refer to."""
    encode = WORDS.get(member.base) or structs[member.base]
    for size in member.dimensions:
        encode = array_of(encode, size)
    return encode


def _struct(type_hash: bytes, members: tuple[tuple[str, Encode], ...], hashed: Callable[[bytes], bytes]) -> Encode:
    count = len(members)

    def encode(value: object) -> bytes:
        if not isinstance(value, dict):
            raise Misfit(f"expected an object, got {json_kind(value)}")
        given = cast("dict[str, object]", value)
        if len(given) != count:
            raise _not_the_members(given, [name for name, _ in members])
        words = [type_hash]
        name = ""
        try:
            for name, encode_member in members:
                words.append(encode_member(given[name]))
        except Misfit as misfit:
            misfit.path.append(name)
            raise
        except KeyError:
            raise _not_the_members(given, [name for name, _ in members]) from None
        return hashed(b"".join(words))

    return encode


def array_of(encode_item: Encode, size: int | None = None) -> Encode:
    """EIP-712 `encodeData` of an array with `size` items, or of any number of them."""

    def encode(value: object) -> bytes:
        if not isinstance(value, list):
            raise Misfit(f"expected an array, got {json_kind(value)}")
        items = cast("list[object]", value)
        if size is not None and len(items) != size:
            raise Misfit(f"expected {size} items, got {len(items)}")
        words: list[bytes] = []
        try:
            for item in items:
                words.append(encode_item(item))  # noqa: PERF401 - the length of the list is the index of a refused item
        except Misfit as misfit:
            misfit.path.append(str(len(words)))
            raise
        return keccak256(b"".join(words))

    return encode


def _not_the_members(given: dict[str, object], names: list[str]) -> Misfit:
    """The refusal of a missing or unknown member; it repeats only names that are identifiers."""
    missing = next((name for name in names if name not in given), None)
    if missing is not None:
        return _at(missing, "a member that the types name is missing")
    extra = next(name for name in given if name not in names)
    return _at(extra if is_identifier(extra) else None, "a member that the types do not name")


def _at(name: str | None, detail: str) -> Misfit:
    misfit = Misfit(detail)
    if name is not None:
        misfit.path.append(name)
    return misfit


def _check_count(values: object) -> None:
    """Raise `Misfit` for more than `NODES_MAX` values; counts without recursion, and stops at the limit."""
    count = 0
    open_values: list[Any] = [values]
    while open_values:
        value = open_values.pop()
        count += 1
        if isinstance(value, list):
            open_values.extend(cast("list[Any]", value))
        elif isinstance(value, dict):
            open_values.extend(cast("dict[Any, Any]", value).values())
        if count + len(open_values) > NODES_MAX:
            raise Misfit(f"more than {NODES_MAX} values")
