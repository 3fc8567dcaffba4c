"""The rules for a trigger's values that are narrower than their EIP-712 types, and that no encoder checks."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final, cast

from muniment.errors import Invalid, InvalidTypedData
from muniment.evm.address import Address
from muniment.evm.words import SAFE_INTEGER_MAX
from muniment.wire import Amount, json_kind

# One byte in the types of most clients; no relayer has so many validators.
VALIDATIONS_MAX: Final = 255

_DECIMAL: Final = re.compile(r"0|[1-9][0-9]{0,77}")
_FRACTION: Final = re.compile(r"[0-9]+(\.[0-9]+)?")
_TOPIC: Final = re.compile(r"0x[0-9a-fA-F]{64}")


def check_values(values: object, inputs: Mapping[str, str]) -> None:
    """Check the rules that are narrower than a value's EIP-712 type.

    The encoder refuses missing members and values out of range; `trigger_hash` runs this and the encoder.
    Raises `InvalidTypedData` with a pointer that begins at `/values`.
    """
    top = object_at(values, "/values")
    _apply(_TOP_CHECKS, top, "/values")
    _apply(_CONFIG_CHECKS, object_at(top.get("config"), "/values/config"), "/values/config")
    given = object_at(top.get("input"), "/values/input")
    for name, word in inputs.items():
        if word == "TokenAmount":
            _apply({name: _check_token_amount}, given, "/values/input")


def object_at(value: object, pointer: str) -> dict[str, object]:
    """`value` if it is an object. Raises `InvalidTypedData` with `pointer` otherwise."""
    if not isinstance(value, dict):
        raise InvalidTypedData(f"expected an object, got {json_kind(value)}", pointer=pointer)
    return cast("dict[str, object]", value)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise InvalidTypedData(f"expected a string, got {json_kind(value)}")
    return value


def _check_fee_limit(value: object) -> None:
    if type(value) is not Amount:  # an `Amount` was checked when it was made
        Amount.parse(_text(value))


def _check_validations(value: object) -> None:
    if type(value) is not int or not 1 <= value <= VALIDATIONS_MAX:
        raise InvalidTypedData(f"expected an integer from 1 to {VALIDATIONS_MAX}")


def _check_natural(value: object) -> None:
    fits = 0 <= value <= SAFE_INTEGER_MAX if type(value) is int else _DECIMAL.fullmatch(_text(value))
    if not fits:
        raise InvalidTypedData("expected an integer from 0 to 2^53 - 1, or a decimal string")


def _check_topics(value: object) -> None:
    if not isinstance(value, list):
        raise InvalidTypedData(f"expected an array, got {json_kind(value)}")
    for position, choices in enumerate(cast("list[object]", value)):
        if not isinstance(choices, list):
            raise InvalidTypedData(f"expected an array, got {json_kind(choices)}", pointer=f"/{position}")
        for index, topic in enumerate(cast("list[object]", choices)):
            if not isinstance(topic, str) or not _TOPIC.fullmatch(topic):
                raise InvalidTypedData("a topic is 0x and 64 hex digits", pointer=f"/{position}/{index}")


def _check_token_amount(value: object) -> None:
    amount = object_at(value, "").get("amount")
    if not isinstance(amount, str) or not _FRACTION.fullmatch(amount):
        raise InvalidTypedData("an amount of tokens is a decimal string such as 1 or 1.5", pointer="/amount")


_Checks = Mapping[str, Callable[[object], object]]
_TOP_CHECKS: Final[_Checks] = {
    "executionFeeLimit": _check_fee_limit, "minValidations": _check_validations,
}  # fmt: skip
_CONFIG_CHECKS: Final[_Checks] = {
    "chainId": _check_natural, "startDate": _check_natural, "endDate": _check_natural,
    "contract": lambda value: Address.parse(_text(value)), "topics": _check_topics,
}  # fmt: skip


def _apply(checks: _Checks, given: Mapping[str, object], pointer: str) -> None:
    for name, check in checks.items():
        if name in given:
            try:
                check(given[name])
            except Invalid as error:
                faults = error.under(f"{pointer}/{name}").faults
                raise InvalidTypedData(error.detail, faults=faults) from None
