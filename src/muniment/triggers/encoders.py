"""Encoders for a trigger's types, compiled after the types passed the closed table (`typed_data`).

Only Trigger and Config differ between callers, in types and order. Input is compiled once for each set of inputs, Token
and TokenAmount once for all callers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from operator import itemgetter
from typing import Any, Final, cast

from muniment.evm.hashing import keccak256_kept
from muniment.evm.struct_types import read_types
from muniment.evm.typed_data import Encoder, Struct, array_of, encoder_of
from muniment.evm.words import WORDS, Encode

PRIMARY: Final = "Trigger"
TOKEN: Final = {"address": "address", "chainId": "uint256"}
TOKEN_AMOUNT: Final = {"token": "Token", "amount": "string"}

# Functions use few tokens on few chains. An entry takes at most about 1 kB: 2 MB when full.
_TOKENS_KEPT: Final = 2_048


def compile_trigger(trigger: Iterable[tuple[str, str]], config: Iterable[tuple[str, str]], inputs: Struct) -> Encoder:
    """The encoder for these members of Trigger and Config: pairs of name and type word, in their order."""
    configs = Struct("Config", [(name, word, _ENCODERS[word]) for name, word in config], hashed=keccak256_kept)
    held = {**_ENCODERS, "Input": inputs.encode, "Config": configs.encode}
    return Encoder(Struct(PRIMARY, [(name, word, held[word]) for name, word in trigger], (inputs, configs)))


def compile_input(fixed: dict[str, Any]) -> Struct:
    """The struct Input of the definitions `fixed`, which include Token and TokenAmount if Input uses them.

    Raises `InvalidTypedData` with a pointer that begins at `/types`.
    """
    read = read_types(fixed, "Input")
    members = [(each.name, each.type, encoder_of(each, _ENCODERS)) for each in read.members["Input"]]
    return Struct("Input", members, [struct for struct in (_TOKEN, _TOKEN_AMOUNT) if struct.name in fixed])


def _kept(encode: Encode, names: Iterable[str]) -> Encode:
    """`encode` with a cache, for a struct whose members `names` are short in every valid value.

    Refused values are not cached.
    """
    names = tuple(names)
    members_of = cast("Callable[[dict[str, object]], tuple[object, ...]]", itemgetter(*names))

    # `typed`, because 1 and true are equal in Python.
    @lru_cache(maxsize=_TOKENS_KEPT, typed=True)
    def hash_of(*values: object) -> bytes:
        return encode(dict(zip(names, values, strict=True)))

    def encode_kept(value: object) -> bytes:
        if isinstance(value, dict) and len(members := cast("dict[str, object]", value)) == len(names):
            try:
                return hash_of(*members_of(members))
            except (KeyError, TypeError):  # TypeError: a list or an object, which cannot be looked up
                pass
        return encode(cast("object", value))

    return encode_kept


_TOKEN: Final = Struct("Token", [(name, word, WORDS[word]) for name, word in TOKEN.items()])
_encode_token: Final = _kept(_TOKEN.encode, TOKEN)
_TOKEN_AMOUNT: Final = Struct(
    "TokenAmount", [("token", "Token", _encode_token), ("amount", "string", WORDS["string"])], [_TOKEN], keccak256_kept
)
_ENCODERS: Final = {
    **WORDS,
    "bytes32[][]": array_of(array_of(WORDS["bytes32"])),
    "string[][]": array_of(array_of(WORDS["string"])),
    "Token": _encode_token,
    "TokenAmount": _TOKEN_AMOUNT.encode,
}
