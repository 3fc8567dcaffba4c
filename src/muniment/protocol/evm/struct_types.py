"""EIP-712 struct definitions, read strictly: shape, names, limits, and references between them.

A caller may send any graph of definitions. So each walk visits each definition once; otherwise a few hundred bytes of
input could take exponential time.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, cast

from muniment.protocol.errors import InvalidTypedData
from muniment.protocol.evm.words import WORDS

# No honest request comes near these limits; together they limit the work that one request can cause.
STRUCTS_MAX: Final = 32
MEMBERS_MAX: Final = 64
LEVELS_MAX: Final = 16
ARRAY_DIMENSIONS_MAX: Final = 4
# Values in total: structs, arrays and their contents. At most about 30 ms of work on one core.
NODES_MAX: Final = 20_000

_IDENTIFIER: Final = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*")
_DIMENSION: Final = re.compile(r"\[([1-9][0-9]{0,4})?\]")
# Words of Solidity's types. A struct of such a name would change the meaning of members of that type.
_BUILTIN: Final = re.compile(r"(?:u?int|bytes|u?fixed)[0-9x]*|address|bool|byte|function|mapping|string|tuple|var")


@dataclass(frozen=True, slots=True)
class Member:
    """One member of a struct. `dimensions` are the sizes of its array type, innermost first; None: dynamic."""

    name: str
    type: str
    base: str
    dimensions: tuple[int | None, ...]


@dataclass(slots=True)
class StructTypes:
    """Checked definitions. `leaves_first` lists every struct after the structs that it refers to."""

    members: dict[str, tuple[Member, ...]]
    leaves_first: list[str] = field(default_factory=list[str])
    levels: dict[str, int] = field(default_factory=dict[str, int])
    nodes: dict[str, int] = field(default_factory=dict[str, int])


def is_identifier(name: object) -> bool:
    """Whether `name` is an ASCII identifier of Solidity, as EIP-712 requires."""
    return isinstance(name, str) and _IDENTIFIER.fullmatch(name) is not None


def read_types(types: object, primary: str) -> StructTypes:
    """Check the definitions in `types`, the outermost of which is `primary`.

    Raises `InvalidTypedData` with a pointer that begins at `/types`.
    """
    if not isinstance(types, dict):
        raise InvalidTypedData("types is an object of struct definitions", pointer="/types")
    definitions = cast("dict[Any, Any]", types)
    if len(definitions) > STRUCTS_MAX:
        raise InvalidTypedData(f"types defines at most {STRUCTS_MAX} structs", pointer="/types")
    if primary not in definitions:
        raise InvalidTypedData(f"types does not define {primary}", pointer="/types")
    for name in definitions:
        _check_struct_name(name)
    structs = StructTypes({name: _read_struct(name, given, definitions) for name, given in definitions.items()})
    _resolve(structs, primary, set())
    for name in structs.members:
        if name not in structs.levels:
            raise InvalidTypedData(f"{primary} does not refer to this struct", pointer=f"/types/{name}")
    return structs


def _check_struct_name(name: object) -> None:
    if not isinstance(name, str) or not _IDENTIFIER.fullmatch(name):
        raise InvalidTypedData("the name of a struct is an ASCII identifier", pointer="/types")
    if name == "EIP712Domain":
        raise InvalidTypedData("the domain is the registry's own, not part of types", pointer=f"/types/{name}")
    if _BUILTIN.fullmatch(name):
        raise InvalidTypedData("a struct has the name of a built-in type", pointer=f"/types/{name}")


def _read_struct(name: str, given: object, structs: Mapping[str, object]) -> tuple[Member, ...]:
    pointer = f"/types/{name}"
    if not isinstance(given, list):
        raise InvalidTypedData("a struct is an array of members", pointer=pointer)
    items = cast("list[Any]", given)
    if len(items) > MEMBERS_MAX:
        raise InvalidTypedData(f"a struct has at most {MEMBERS_MAX} members", pointer=pointer)
    members: list[Member] = []
    seen: set[str] = set()
    for index, item in enumerate(items):
        member = _read_member(item, structs, f"{pointer}/{index}")
        if member.name in seen:
            raise InvalidTypedData("a struct repeats a member name", pointer=f"{pointer}/{index}/name")
        seen.add(member.name)
        members.append(member)
    return tuple(members)


def _read_member(item: object, structs: Mapping[str, object], pointer: str) -> Member:
    if not isinstance(item, dict) or cast("dict[Any, Any]", item).keys() != {"name", "type"}:
        raise InvalidTypedData("a member is an object of exactly name and type", pointer=pointer)
    given = cast("dict[str, Any]", item)
    name, word = given["name"], given["type"]
    if not isinstance(name, str) or not _IDENTIFIER.fullmatch(name):
        raise InvalidTypedData("the name of a member is an ASCII identifier", pointer=f"{pointer}/name")
    base, dimensions = _read_type(word, f"{pointer}/type")
    if base not in WORDS and base not in structs:
        raise InvalidTypedData("neither a canonical EIP-712 type nor a struct in types", pointer=f"{pointer}/type")
    return Member(name, word, base, dimensions)


def _read_type(word: Any, pointer: str) -> tuple[str, tuple[int | None, ...]]:
    """The base of a type and the sizes of its dimensions, read one by one: nothing is read twice."""
    found = _IDENTIFIER.match(word) if isinstance(word, str) else None
    if found is None:
        raise InvalidTypedData("not a canonical EIP-712 type", pointer=pointer)
    dimensions: list[int | None] = []
    at = found.end()
    while at < len(word):
        dimension = _DIMENSION.match(word, at)
        if dimension is None:
            raise InvalidTypedData("not a canonical EIP-712 type", pointer=pointer)
        if len(dimensions) == ARRAY_DIMENSIONS_MAX:
            detail = f"an array type has at most {ARRAY_DIMENSIONS_MAX} dimensions"
            raise InvalidTypedData(detail, pointer=pointer)
        dimensions.append(int(dimension[1]) if dimension[1] else None)
        at = dimension.end()
    return found[0], tuple(dimensions)


def _resolve(structs: StructTypes, name: str, under: set[str]) -> None:
    """Walk depth first from `name`, each struct once; the depth is at most `STRUCTS_MAX`."""
    under.add(name)
    levels, nodes = 1, 1
    for index, member in enumerate(structs.members[name]):
        pointer = f"/types/{name}/{index}/type"
        if member.base in structs.members:
            if member.base in under:
                raise InvalidTypedData("a struct refers back to one that holds it", pointer=pointer)
            if member.base not in structs.levels:
                _resolve(structs, member.base, under)
            levels = max(levels, 1 + structs.levels[member.base])
        nodes += _nodes(member, structs.nodes.get(member.base, 1))
        if levels > LEVELS_MAX:
            raise InvalidTypedData(f"structs nest at most {LEVELS_MAX} levels deep", pointer=pointer)
        if nodes > NODES_MAX:
            raise InvalidTypedData(f"the types ask for more than {NODES_MAX} values", pointer=pointer)
    under.discard(name)
    structs.levels[name], structs.nodes[name] = levels, nodes
    structs.leaves_first.append(name)


def _nodes(member: Member, of_base: int) -> int:
    """The smallest number of values in a member; a dynamic array may be empty."""
    nodes = of_base
    for size in member.dimensions:
        nodes = 1 if size is None else 1 + size * nodes
    return nodes
