"""What a trigger's signature covers: the EIP-712 types for a function's inputs, and what types a caller may use.

Clients spell some members differently, so a signature is verified against the caller's own types, but only within
a closed table: whatever passes means one thing to the wallet that showed it, to this registry and to a relayer.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import zip_longest
from typing import Any, Final, cast

import msgspec

from muniment.errors import Invalid, InvalidTypedData
from muniment.evm.address import Address
from muniment.evm.signature import Signature, personal_digest
from muniment.evm.typed_data import KEPT_KEY_BYTES_MAX, Domain, Encoder, compile_types, digest, types_key
from muniment.evm.words import SAFE_INTEGER_MAX, WORDS
from muniment.wire import Amount, json_kind

Types = dict[str, list[dict[str, str]]]

CRON: Final = 0
EVENT: Final = 1
ONCE: Final = 2

PRIMARY: Final = "Trigger"
DEACTIVATE: Final = "Deactivate"
DEACTIVATE_TYPES: Final[Types] = {DEACTIVATE: [{"name": "triggerSigs", "type": "string[]"}]}
# One byte in most clients' types; no relayer has as many validators.
VALIDATIONS_MAX: Final = 255

_TRIGGER: Final = {
    "functionCid": "string", "version": "string", "input": "Input", "config": "Config",
    "executionFeeLimit": "uint256", "minValidations": "uint8",
}  # fmt: skip
_CONFIG: Final = {
    CRON: {"type": "uint8", "schedule": "string", "delta": "string", "endDate": "uint256"},
    EVENT: {
        "type": "uint8", "chainId": "uint256", "contract": "address", "topics": "bytes32[][]",
        "delta": "string", "endDate": "uint256",
    },
    ONCE: {"type": "uint8", "startDate": "uint256", "delta": "string", "endDate": "uint256"},
}  # fmt: skip
_TOKEN: Final = {"address": "address", "chainId": "uint256"}
_TOKEN_AMOUNT: Final = {"token": "Token", "amount": "string"}

# The closed table: what a member may be instead of the type that sign-params gives it.
_ANY_UINT: Final = frozenset(word for word in WORDS if word.startswith("uint"))
_ALSO: Final[Mapping[str, frozenset[str]]] = {
    "executionFeeLimit": frozenset({"string"}), "minValidations": _ANY_UINT, "type": _ANY_UINT,
    "chainId": _ANY_UINT, "startDate": _ANY_UINT, "endDate": _ANY_UINT,
    "contract": frozenset({"string"}), "topics": frozenset({"string[][]"}),
}  # fmt: skip
_OPTIONAL: Final = {CRON: frozenset[str](), EVENT: frozenset[str](), ONCE: frozenset({"startDate"})}

_DECIMAL: Final = re.compile(r"0|[1-9][0-9]{0,77}")
_FRACTION: Final = re.compile(r"[0-9]+(\.[0-9]+)?")
_TOPIC: Final = re.compile(r"0x[0-9a-fA-F]{64}")
# One function has one set of inputs, and its clients two or three spellings of types.
_ENCODERS_KEPT: Final = 512


def registry_domain(protocol_name: str) -> Domain:
    """The domain that every trigger and deactivation is signed under."""
    return Domain(name=f"{protocol_name} Protocol - Registry", version="1")


# --- types ----------------------------------------------------------------------------------------


def types_for(inputs: Mapping[str, str], config_type: int) -> Types:
    """The types that `/triggers/sign-params` gives: Trigger, Input, Config, then Token and TokenAmount when used.

    `inputs` maps the names of the manifest's inputs to their type words, in the manifest's order. `config_type`
    is `CRON`, `EVENT` or `ONCE`.
    """
    structs = {PRIMARY: _TRIGGER, "Input": _input_of(inputs), "Config": _CONFIG[config_type], **_structs_used(inputs)}
    return {
        struct: [{"name": name, "type": word} for name, word in members.items()] for struct, members in structs.items()
    }


def check_types(types: object, inputs: Mapping[str, str], config_type: int) -> None:
    """Check a caller's types against the closed table.

    The order of members is free in Trigger and Config, whose members are told apart by name; Input, Token and
    TokenAmount have one order. Raises `InvalidTypedData` with a pointer that begins at `/types`.
    """
    if not isinstance(types, dict):
        raise InvalidTypedData("types is an object of struct definitions", pointer="/types")
    given = cast("dict[str, object]", types)
    fixed = {"Input": _input_of(inputs), **_structs_used(inputs)}
    wanted = [PRIMARY, "Config", *fixed]
    for name in wanted:
        if name not in given:
            raise InvalidTypedData(f"types does not define {name}", pointer="/types")
    if len(given) != len(wanted):
        raise InvalidTypedData(f"types defines {', '.join(wanted)} and nothing else", pointer="/types")
    _check_any_order(given[PRIMARY], PRIMARY, _TRIGGER, frozenset())
    _check_any_order(given["Config"], "Config", _CONFIG[config_type], _OPTIONAL[config_type])
    for name, members in fixed.items():
        _check_in_order(given[name], name, members)


def trigger_encoder(types: object, inputs: Mapping[str, str], config_type: int) -> Encoder:
    """The encoder for a caller's types, after `check_types`. What was found good is kept."""
    key = types_key(types)
    kept = _kept if len(key) <= KEPT_KEY_BYTES_MAX else _kept.__wrapped__
    return kept(key, tuple(inputs.items()), config_type)


@lru_cache(maxsize=_ENCODERS_KEPT)
def _kept(key: bytes, inputs: tuple[tuple[str, str], ...], config_type: int) -> Encoder:
    types = msgspec.json.decode(key)
    check_types(types, dict(inputs), config_type)
    return compile_types(types, PRIMARY)


def _input_of(inputs: Mapping[str, str]) -> dict[str, str]:
    """The members of Input. Wallets cannot sign the bare words: EIP-712 has only the sized ones."""
    bare = {"int": "int256", "uint": "uint256"}
    return {name: bare.get(word, word) for name, word in inputs.items()}


def _structs_used(inputs: Mapping[str, str]) -> dict[str, dict[str, str]]:
    words = set(inputs.values())
    if "TokenAmount" in words:
        return {"Token": _TOKEN, "TokenAmount": _TOKEN_AMOUNT}
    return {"Token": _TOKEN} if "Token" in words else {}


def _check_in_order(given: object, struct: str, wanted: Mapping[str, str]) -> None:
    for index, (member, due) in enumerate(zip_longest(_read_members(given, struct), wanted.items())):
        if member != due:
            detail = f"{struct} has {f'{due[0]} of type {due[1]}' if due else 'no member'} here"
            raise InvalidTypedData(detail, pointer=f"/types/{struct}" + (f"/{index}" if member else ""))


def _check_any_order(given: object, struct: str, wanted: Mapping[str, str], optional: frozenset[str]) -> None:
    seen: set[str] = set()
    for index, (name, word) in enumerate(_read_members(given, struct)):
        pointer = f"/types/{struct}/{index}"
        if name not in wanted:
            raise InvalidTypedData(f"{struct} has no such member", pointer=f"{pointer}/name")
        if name in seen:
            raise InvalidTypedData("two members of a struct have one name", pointer=f"{pointer}/name")
        if word != wanted[name] and word not in _ALSO.get(name, ()):
            raise InvalidTypedData(f"{name} has another type, such as {wanted[name]}", pointer=f"{pointer}/type")
        seen.add(name)
    for name in wanted:
        if name not in seen and name not in optional:
            raise InvalidTypedData(f"{struct} lacks its member {name}", pointer=f"/types/{struct}")


def _read_members(given: object, struct: str) -> list[tuple[str, str]]:
    """The members as pairs of name and type; that a member has nothing else is part of the closed table."""
    if not isinstance(given, list):
        raise InvalidTypedData("a struct is an array of members", pointer=f"/types/{struct}")
    pairs: list[tuple[str, str]] = []
    for index, item in enumerate(cast("list[object]", given)):
        member = cast("dict[str, object]", item) if isinstance(item, dict) else {}
        name, word = member.get("name"), member.get("type")
        if len(member) != 2 or not isinstance(name, str) or not isinstance(word, str):  # noqa: PLR2004 - name and type
            detail = "a member is an object of exactly name and type, both strings"
            raise InvalidTypedData(detail, pointer=f"/types/{struct}/{index}")
        pairs.append((name, word))
    return pairs


# --- values ---------------------------------------------------------------------------------------


def trigger_hash(types: object, values: object, inputs: Mapping[str, str]) -> bytes:
    """EIP-712 `hashStruct` of a trigger, 32 bytes, after every check of its types and values.

    Raises `InvalidTypedData` with a pointer that begins at `/types` or `/values`.
    """
    encoder = trigger_encoder(types, inputs, config_type_of(values))
    check_values(values, inputs)
    return encoder.struct_hash(values)


def config_type_of(values: object) -> int:
    """The variant of the config in `values`. Raises `InvalidTypedData`."""
    config = _object(_object(values, "/values").get("config"), "/values/config")
    config_type = config.get("type")
    if type(config_type) is not int or config_type not in _CONFIG:
        detail = "the type of a config is the integer 0 (cron), 1 (event) or 2 (once)"
        raise InvalidTypedData(detail, pointer="/values/config/type")
    return config_type


def check_values(values: object, inputs: Mapping[str, str]) -> None:
    """Check what the encoder cannot know: values that are narrower than their EIP-712 type.

    It says nothing of missing members and ranges, which the encoder refuses; `trigger_hash` asks both.
    Raises `InvalidTypedData` with a pointer that begins at `/values`.
    """
    top = _object(values, "/values")
    _apply(_TOP_CHECKS, top, "/values")
    _apply(_CONFIG_CHECKS, _object(top.get("config"), "/values/config"), "/values/config")
    token_amounts: _Checks = {name: _check_token_amount for name, word in inputs.items() if word == "TokenAmount"}
    _apply(token_amounts, _object(top.get("input"), "/values/input"), "/values/input")


def message(values: Mapping[str, Any], inputs: Mapping[str, str]) -> dict[str, Any]:
    """`values` that passed `trigger_hash`, as sign-params shows them: every address with its checksum (EIP-55)."""
    config: dict[str, Any] = dict(values["config"])
    if "contract" in config:
        config["contract"] = _shown(config["contract"], "address")
    shown = {name: _shown(value, inputs[name]) for name, value in values["input"].items()}
    return {**values, "input": shown, "config": config}


def _shown(value: Any, word: str) -> Any:
    if word == "address":
        return str(Address.parse(value))
    if word == "Token":
        return {**value, "address": _shown(value["address"], "address")}
    return {**value, "token": _shown(value["token"], "Token")} if word == "TokenAmount" else value


def _object(value: object, pointer: str) -> dict[str, object]:
    if not isinstance(value, dict):
        raise InvalidTypedData(f"expected an object, got {json_kind(value)}", pointer=pointer)
    return cast("dict[str, object]", value)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise InvalidTypedData(f"expected a string, got {json_kind(value)}")
    return value


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
    amount = _object(value, "").get("amount")
    if not isinstance(amount, str) or not _FRACTION.fullmatch(amount):
        raise InvalidTypedData("an amount of tokens is a decimal string such as 1 or 1.5", pointer="/amount")


_Checks = Mapping[str, Callable[[object], object]]
_TOP_CHECKS: Final[_Checks] = {
    "executionFeeLimit": lambda value: Amount.parse(_text(value)), "minValidations": _check_validations,
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


# --- deactivation ---------------------------------------------------------------------------------


def deactivation_text(trigger_sigs: Sequence[Signature]) -> str:
    """What `personal_sign` shows for a deactivation: the canonical signatures in the posted order, joined by `,`."""
    return ",".join(trigger_sigs)


def deactivation_digests(trigger_sigs: Sequence[Signature], domain: Domain) -> tuple[bytes, bytes]:
    """What the owner may have signed to deactivate the listed triggers: as text (EIP-191), as typed data (EIP-712)."""
    as_text = personal_digest(deactivation_text(trigger_sigs).encode("ascii"))
    struct_hash = compile_types(DEACTIVATE_TYPES, DEACTIVATE).struct_hash({"triggerSigs": list(trigger_sigs)})
    return as_text, digest(domain, struct_hash)
