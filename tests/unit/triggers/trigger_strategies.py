"""Manifest inputs, and the values of triggers for them."""

from typing import Any

from hypothesis import strategies as st

WORDS = (
    *(sign + size for sign in ("int", "uint") for size in ("", "8", "16", "32", "64", "128", "256")),
    "bool", "address", "bytes", *(f"bytes{size}" for size in range(1, 33)), "string", "Token", "TokenAmount",
)  # fmt: skip
NAMES = st.from_regex(r"[A-Za-z_$][A-Za-z0-9_$]{0,10}", fullmatch=True)
SIGNED_HASHES = st.binary(min_size=32, max_size=32).map(lambda raw: "0x" + raw.hex())

addresses = st.binary(min_size=20, max_size=20).map(lambda raw: "0x" + raw.hex())
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
times = st.integers(0, 2**53 - 1)
naturals = times | st.integers(0, 2**256 - 1).map(str)
amounts = st.integers(0, 2**256 - 1).map(str)
inputs = st.dictionaries(NAMES, st.sampled_from(WORDS), max_size=6)


def value_of(word: str) -> st.SearchStrategy[Any]:
    """A value for an input of the manifest type `word`."""
    fixed: dict[str, st.SearchStrategy[Any]] = {
        "bool": st.booleans(),
        "address": addresses,
        "string": texts,
        "bytes": st.binary(max_size=40).map(lambda raw: "0x" + raw.hex()),
        "Token": _token(),
        "TokenAmount": st.fixed_dictionaries(
            {"token": _token(), "amount": st.from_regex(r"[0-9]{1,9}(\.[0-9]{1,9})?", fullmatch=True)}
        ),
    }
    if word in fixed:
        return fixed[word]
    if word.startswith("bytes"):
        size = int(word.removeprefix("bytes"))
        return st.binary(min_size=size, max_size=size).map(lambda raw: "0x" + raw.hex())
    bits = int(word.removeprefix("u").removeprefix("int") or "256")
    low, high = (0, 2**bits - 1) if word.startswith("uint") else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    return st.integers(low, high).map(str) | st.integers(0, min(high, 2**53 - 1)) | st.integers(0, high).map(hex)


def _token() -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({"address": addresses, "chainId": naturals})


cron = st.fixed_dictionaries({"type": st.just(0), "schedule": texts, "delta": texts, "endDate": naturals})
event = st.fixed_dictionaries(
    {
        "type": st.just(1),
        "chainId": naturals,
        "contract": addresses,
        "topics": st.lists(st.lists(SIGNED_HASHES, max_size=2), max_size=4),
        "delta": texts,
        "endDate": naturals,
    }
)
once = st.fixed_dictionaries({"type": st.just(2), "startDate": naturals, "delta": texts, "endDate": naturals})


@st.composite
def triggers(draw: st.DrawFn) -> tuple[dict[str, str], dict[str, Any]]:
    """A manifest's inputs and the values of a trigger for it."""
    manifest = draw(inputs)
    values = {
        "functionCid": draw(texts),
        "version": draw(texts),
        "input": {name: draw(value_of(word)) for name, word in manifest.items()},
        "config": draw(cron | event | once),
        "executionFeeLimit": draw(amounts),
        "minValidations": draw(st.integers(1, 255)),
    }
    return manifest, values
