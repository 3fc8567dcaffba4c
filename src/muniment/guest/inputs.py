"""The inputs of a trigger as the globals that a module imports: integers as constants, everything else as texts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, cast

import msgspec

from muniment.guest.outcomes import Stop
from muniment.guest.types import GuestInput

_INTEGER: Final = re.compile(r"(u?)int([0-9]*)")
_SMALL: Final = {"const i32": 32, "const i64": 64}
# As signed values have them (`muniment.protocol.evm.words`).
_DIGITS: Final = re.compile(r"0|-?[1-9][0-9]{0,77}|0x[0-9a-fA-F]{1,64}")


def constant_of(name: str, given: GuestInput | None, types: str) -> int:
    """The value of a constant global of the type `types`, as a signed number of its size. Raises `Stop`."""
    value = _given(name, given)
    bits = _SMALL[types]
    integer = _INTEGER.fullmatch(value.type)
    if value.type == "bool":
        number = int(_flag(name, value.value))
    elif integer and int(integer[2] or 256) <= bits:
        number = _number(name, value.value)
    else:
        raise Stop("bad-input", f"the input {name} is {value.type}, which no global {types} can have")
    if not -(2 ** (bits - 1)) <= number < 2**bits:
        raise Stop("bad-input", f"the input {name} does not fit {bits} bits")
    return number - 2**bits if number >= 2 ** (bits - 1) else number


def text_of(name: str, given: GuestInput | None) -> str:
    """The value of a global that points to a text. Raises `Stop`.

    Integers are decimal, bool is `true` or `false`, addresses and bytes are hex in lower case. A Token is the JSON
    object `{"address", "chainId"}`, a TokenAmount `{"token", "amount"}`.
    """
    word, value = (each := _given(name, given)).type, each.value
    if word == "bool":
        return "true" if _flag(name, value) else "false"
    if word == "Token":
        return msgspec.json.encode(_token(name, value)).decode()
    if word == "TokenAmount":
        amount = _object(name, value)
        shown = {"token": _token(name, amount.get("token")), "amount": _text(name, amount.get("amount"))}
        return msgspec.json.encode(shown).decode()
    if _INTEGER.fullmatch(word):
        return str(_number(name, value))
    text = _text(name, value)
    return text if word == "string" else text.lower()


def _given(name: str, given: GuestInput | None) -> GuestInput:
    if given is None:
        raise Stop("bad-input", f"it imports the input {name[:100]}, which the trigger does not have")
    return given


def _token(name: str, value: object) -> dict[str, Any]:
    token = _object(name, value)
    return {"address": _text(name, token.get("address")).lower(), "chainId": _number(name, token.get("chainId"))}


def _object(name: str, value: object) -> Mapping[str, object]:
    if not isinstance(value, dict):
        raise Stop("bad-input", f"the input {name} is no object")
    return cast("dict[str, object]", value)


def _text(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise Stop("bad-input", f"the input {name} is not a text, or has a member that is not one")
    return value


def _number(name: str, value: object) -> int:
    if type(value) is int:
        return value
    if isinstance(value, str) and _DIGITS.fullmatch(value):
        return int(value, 0)
    raise Stop("bad-input", f"the input {name} is no integer")


def _flag(name: str, value: object) -> bool:
    if isinstance(value, bool):
        return value
    raise Stop("bad-input", f"the input {name} is neither true nor false")
