"""JSON Schemas of triggers for the OpenAPI document, where msgspec cannot express them; and examples."""

from __future__ import annotations

from typing import Any, Final

from muniment.evm.address import Address

SIG: Final = "0x" + "1" * 128 + "1b"
SIGNER: Final = "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed"
CONFIG: Final = {"type": 0, "schedule": "0 */6 * * *", "delta": "10m", "endDate": 0}
VALUES: Final[dict[str, Any]] = {
    "functionCid": "QmRwFzcSwmkbWJuQsFaHcAGvykRU3q82JiYfwGaswNKFG4", "version": "1.0.0", "input": {},
    "config": CONFIG, "executionFeeLimit": "0", "minValidations": 1,
}  # fmt: skip
TYPES: Final[dict[str, Any]] = {
    "Trigger": [
        {"name": "functionCid", "type": "string"}, {"name": "version", "type": "string"},
        {"name": "input", "type": "Input"}, {"name": "config", "type": "Config"},
        {"name": "executionFeeLimit", "type": "uint256"}, {"name": "minValidations", "type": "uint8"},
    ],
    "Input": [],
    "Config": [
        {"name": "type", "type": "uint8"}, {"name": "schedule", "type": "string"},
        {"name": "delta", "type": "string"}, {"name": "endDate", "type": "uint256"},
    ],
}  # fmt: skip
_INTEGER: Final = {
    "title": "Integer",
    "description": "A JSON integer up to 2^53 - 1, or decimal digits as text; bounded by its EIP-712 type",
    "anyOf": [
        {"type": "integer", "minimum": 0, "maximum": 2**53 - 1},
        {"type": "string", "pattern": "^(0|[1-9][0-9]{0,77})$"},
    ],
    "examples": [0],
}
_DELTA: Final = {
    "title": "Delta", "type": "string", "pattern": "^[1-9][0-9]*(s|m|h|d|w)$",
    "description": "How late a run may start: seconds, minutes, hours, days or weeks, at most 52w", "examples": ["10m"],
}  # fmt: skip
_TOPIC: Final = {"type": "string", "pattern": "^0x[0-9a-fA-F]{64}$"}


_END_DATE: Final = {"allOf": [_INTEGER], "description": "Milliseconds since 1970; 0: never ends"}


def _variant(title: str, members: dict[str, Any], sample: dict[str, Any], *optional: str) -> dict[str, Any]:
    properties = {"type": {"const": sample["type"]}, **members, "delta": _DELTA, "endDate": _END_DATE}
    return {
        "type": "object", "title": title, "properties": properties, "additionalProperties": False,
        "required": [name for name in properties if name not in optional], "examples": [sample],
    }  # fmt: skip


# OpenAPI's `discriminator` needs a string; here the constant integer `type` distinguishes the variants.
CONFIG_SCHEMA: Final = {
    "type": "object",
    "anyOf": [
        _variant("CronConfig", {"schedule": {"type": "string", "minLength": 9, "maxLength": 100}}, CONFIG),
        _variant(
            "EventConfig",
            {
                "chainId": _INTEGER,
                "contract": {"title": "Address", **Address.schema},
                "topics": {
                    "type": "array", "maxItems": 4,
                    "items": {"type": "array", "maxItems": 100, "items": _TOPIC},
                },
            },
            {
                "type": 1, "chainId": 8453, "contract": SIGNER, "topics": [["0x" + "ab" * 32], []],
                "delta": "1h", "endDate": 0,
            },
        ),
        _variant("OnceConfig", {"startDate": _INTEGER}, {"type": 2, "delta": "1h", "endDate": 0}, "startDate"),
    ],
}  # fmt: skip

_MEMBER: Final = {
    "title": "TypeMember", "description": "A member of an EIP-712 struct",
    "examples": [{"name": "type", "type": "uint8"}],
    "type": "object", "required": ["name", "type"], "additionalProperties": False,
    "properties": {
        "name": {"type": "string", "pattern": "^[A-Za-z_$][A-Za-z0-9_$]*$"},
        "type": {"type": "string", "pattern": r"^[A-Za-z_$][A-Za-z0-9_$]*(\[[0-9]*\]){0,4}$"},
    },
}  # fmt: skip
_MEMBERS: Final = {"type": "array", "items": _MEMBER, "maxItems": 64}
DEACTIVATE_TYPES_SCHEMA: Final = {
    "properties": {"Deactivate": _MEMBERS}, "additionalProperties": _MEMBERS, "required": ["Deactivate"],
    "examples": [{"Deactivate": [{"name": "triggerSigs", "type": "string[]"}]}],
}  # fmt: skip
_STRUCTS: Final = ("Trigger", "Input", "Config")
INPUT_SCHEMA: Final[dict[str, Any]] = {"maxProperties": 64, "additionalProperties": True, "examples": [{}]}
TYPES_SCHEMA: Final = {
    "maxProperties": 32, "properties": dict.fromkeys(_STRUCTS, _MEMBERS), "additionalProperties": _MEMBERS,
    "required": [*_STRUCTS],
}  # fmt: skip
