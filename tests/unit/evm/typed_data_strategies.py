"""EIP-712 definitions of any shape that the encoder takes, and values that fit them."""

from typing import Any

from hypothesis import strategies as st

from muniment.protocol.evm.words import SAFE_INTEGER_MAX, WORDS

identifiers = st.from_regex(r"[A-Za-z_$][A-Za-z0-9_$]{0,8}", fullmatch=True)
# What UTF-8 can carry, without U+0000.
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)


def integers(word: str) -> st.SearchStrategy[Any]:
    signed = word.startswith("int")
    bits = int(word.removeprefix("u").removeprefix("int"))
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    decimal = st.integers(low, high).map(str)
    json = st.integers(max(low, -SAFE_INTEGER_MAX), min(high, SAFE_INTEGER_MAX))
    return json | decimal | st.integers(0, high).map(hex)


def values_of(word: str) -> st.SearchStrategy[Any]:
    """Values of an atomic or dynamic type."""
    if word == "address":
        return st.binary(min_size=20, max_size=20).map(lambda raw: "0x" + raw.hex())
    if word == "bool":
        return st.booleans()
    if word == "string":
        return texts
    if word == "bytes":
        return st.binary(max_size=80).map(lambda raw: "0x" + raw.hex())
    if word.startswith("bytes"):
        size = int(word.removeprefix("bytes"))
        return st.binary(min_size=size, max_size=size).map(lambda raw: "0x" + raw.hex())
    return integers(word)


@st.composite
def typed_data(draw: st.DrawFn) -> tuple[dict[str, list[dict[str, str]]], str, dict[str, Any]]:
    """Definitions without cycles, the primary struct, and values for it."""
    names = [f"S{number}" for number in draw(st.permutations(range(draw(st.integers(1, 5)))))]
    types: dict[str, list[dict[str, str]]] = {}
    for place, name in enumerate(names):
        later = names[place + 1 :]
        bases = draw(st.lists(st.sampled_from([*WORDS, *later]), max_size=4)) + later[:1]
        members = draw(st.lists(identifiers, min_size=len(bases), max_size=len(bases), unique=True))
        suffixes = [draw(st.sampled_from(["", "", "[]", "[2]", "[][1]", "[2][]"])) for _ in bases]
        types[name] = [
            {"name": member, "type": base + suffix}
            for member, base, suffix in zip(members, bases, suffixes, strict=True)
        ]
    return types, names[0], draw(_struct(types, names[0]))


def _struct(types: dict[str, list[dict[str, str]]], name: str) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({member["name"]: _value(types, member["type"]) for member in types[name]})


def _value(types: dict[str, list[dict[str, str]]], word: str) -> st.SearchStrategy[Any]:
    if word.endswith("]"):
        item, _, size = word[:-1].rpartition("[")
        low, high = (int(size), int(size)) if size else (0, 2)
        return st.lists(_value(types, item), min_size=low, max_size=high)
    return _struct(types, word) if word in types else values_of(word)
