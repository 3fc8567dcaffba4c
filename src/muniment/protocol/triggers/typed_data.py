"""EIP-712 typed data of triggers: types for a function's inputs, and the alternatives that a caller may use.

Clients use different types for some members, so a signature is verified against the caller's own types. A closed table
limits them, so that typed data has one meaning for wallet, registry and relayer.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import zip_longest
from operator import itemgetter
from typing import Any, Final, cast

import msgspec

from muniment.protocol.errors import InvalidAmount, InvalidTypedData
from muniment.protocol.evm.address import Address
from muniment.protocol.evm.hashing import keccak256_kept
from muniment.protocol.evm.signature import Signature, personal_digest
from muniment.protocol.evm.struct_types import read_types
from muniment.protocol.evm.typed_data import (
    KEPT_KEY_BYTES_MAX,
    Domain,
    Encoder,
    Struct,
    array_of,
    compile_types,
    digest,
    encoder_of,
    types_key,
)
from muniment.protocol.evm.words import SAFE_INTEGER_MAX, WORDS, Encode, Misfit
from muniment.protocol.wire import Amount, json_kind

# One byte in the types of most clients.
VALIDATIONS_MAX: Final = 255

_DECIMAL: Final = re.compile(r"0|[1-9][0-9]{0,77}")
_FRACTION: Final = re.compile(r"[0-9]+(\.[0-9]+)?")
_TOPIC: Final = re.compile(r"0x[0-9a-fA-F]{64}")


def check_input_names(given: Iterable[str], inputs: Mapping[str, str]) -> None:
    """Check that the names in `given` are those of a function's inputs.

    Raises `InvalidTypedData` that says what is missing or unknown, and what the function takes.
    """
    names = {*given}
    missing = [f"{name} ({word})" for name, word in inputs.items() if name not in names]
    unknown = sorted(names - inputs.keys())
    faults = [f"the function needs more inputs: {', '.join(missing)}"] if missing else []
    faults += [f"the function has no input {', '.join(unknown)}"] if unknown else []
    if len(missing) < len(inputs) or not inputs:
        faults += [f"it takes {', '.join(f'{name} ({word})' for name, word in inputs.items()) or 'no inputs'}"]
    if missing or unknown:
        raise InvalidTypedData("; ".join(faults))


def object_at(value: object, pointer: str) -> dict[str, object]:
    """`value` if it is an object. Raises `InvalidTypedData` with `pointer` otherwise."""
    if not isinstance(value, dict):
        raise InvalidTypedData(f"expected an object, got {json_kind(value)}", pointer=pointer)
    return cast("dict[str, object]", value)


def _check_fee_limit(value: object) -> None:
    if type(value) is not Amount:  # an `Amount` was checked when it was made
        try:
            Amount.parse(_text(value))
        except InvalidAmount as refusal:
            raise Misfit(refusal.detail) from None


def _check_validations(value: object) -> None:
    if type(value) is not int or not 1 <= value <= VALIDATIONS_MAX:
        raise Misfit(f"expected an integer from 1 to {VALIDATIONS_MAX}")


def _check_natural(value: object) -> None:
    fits = 0 <= value <= SAFE_INTEGER_MAX if type(value) is int else _DECIMAL.fullmatch(_text(value))
    if not fits:
        raise Misfit("expected an integer from 0 to 2^53 - 1, or a decimal string")


def _check_topic(value: object) -> None:
    if not isinstance(value, str) or not _TOPIC.fullmatch(value):
        raise Misfit("a topic is 0x and 64 hex digits")


def _check_token_amount(value: object) -> None:
    if not isinstance(value, str) or not _FRACTION.fullmatch(value):
        raise Misfit("an amount of tokens is a decimal string such as 1 or 1.5")


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise Misfit(f"expected a string, got {json_kind(value)}")
    return value


def _narrowed(check: Callable[[object], object], encode: Encode) -> Encode:
    """`encode` for values that `check` lets pass; it raises `Misfit` for others."""

    def encode_checked(value: object) -> bytes:
        check(value)
        return encode(value)

    return encode_checked


PRIMARY: Final = "Trigger"
TOKEN: Final = {"address": "address", "chainId": "uint256"}
TOKEN_AMOUNT: Final = {"token": "Token", "amount": "string"}

# Cached tokens: an entry takes at most about 1 kB, 2 MB when full.
_TOKENS_KEPT: Final = 2_048


def compile_trigger(trigger: Iterable[tuple[str, str]], config: Iterable[tuple[str, str]], inputs: Struct) -> Encoder:
    """The encoder for these members of Trigger and Config: pairs of name and type word, in their order."""
    configs = Struct("Config", _members(config, _ENCODERS), hashed=keccak256_kept)
    held = {**_ENCODERS, "Input": inputs.encode, "Config": configs.encode}
    return Encoder(Struct(PRIMARY, _members(trigger, held), (inputs, configs)))


def _members(members: Iterable[tuple[str, str]], encoders: Mapping[str, Encode]) -> list[tuple[str, str, Encode]]:
    """`members` of Trigger or Config with their encoders: where a rule is narrower than the type, with a check."""
    return [
        (name, word, _narrowed(_NARROWER[name], encoders[word]) if name in _NARROWER else encoders[word])
        for name, word in members
    ]


def compile_input(fixed: dict[str, Any]) -> Struct:
    """The struct Input of the definitions `fixed`, which include Token and TokenAmount if Input uses them.

    Raises `InvalidTypedData` with a pointer that begins at `/types`.
    """
    read = read_types(fixed, "Input")
    members = [(each.name, each.type, encoder_of(each, _ENCODERS)) for each in read.members["Input"]]
    return Struct("Input", members, [struct for struct in (_TOKEN, _TOKEN_AMOUNT) if struct.name in fixed])


def _cached(encode: Encode, names: Iterable[str]) -> Encode:
    """`encode` with a cache, for a struct whose members `names` are short in every valid value."""
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
_encode_token: Final = _cached(_TOKEN.encode, TOKEN)
_TOKEN_AMOUNT: Final = Struct(
    "TokenAmount",
    [("token", "Token", _encode_token), ("amount", "string", _narrowed(_check_token_amount, WORDS["string"]))],
    [_TOKEN],
    keccak256_kept,
)
_ENCODERS: Final = {
    **WORDS,
    "bytes32[][]": array_of(array_of(WORDS["bytes32"])),
    "string[][]": array_of(array_of(_narrowed(_check_topic, WORDS["string"]))),
    "Token": _encode_token,
    "TokenAmount": _TOKEN_AMOUNT.encode,
}
# The rules that are narrower than the EIP-712 type of a member of Trigger or Config.
_NARROWER: Final[Mapping[str, Callable[[object], object]]] = {
    "executionFeeLimit": _check_fee_limit, "minValidations": _check_validations,
    "chainId": _check_natural, "startDate": _check_natural, "endDate": _check_natural,
    "contract": WORDS["address"],
}  # fmt: skip


Types = dict[str, list[dict[str, str]]]
# Pairs of name and type word, in their order: a struct's members, a function's inputs.
_Pairs = Sequence[tuple[str, str]]

CRON: Final = 0
EVENT: Final = 1
ONCE: Final = 2

DEACTIVATE: Final = "Deactivate"
DEACTIVATE_TYPES: Final[Types] = {DEACTIVATE: [{"name": "triggerSigs", "type": "string[]"}]}

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

# The closed table: alternatives to the type of a member in `/triggers/sign-params`.
_ANY_UINT: Final = frozenset(word for word in WORDS if word.startswith("uint"))
_ALSO: Final[Mapping[str, frozenset[str]]] = {
    "executionFeeLimit": frozenset({"string"}), "minValidations": _ANY_UINT, "type": _ANY_UINT,
    "chainId": _ANY_UINT, "startDate": _ANY_UINT, "endDate": _ANY_UINT,
    "contract": frozenset({"string"}), "topics": frozenset({"string[][]"}),
}  # fmt: skip
_OPTIONAL: Final = {CRON: frozenset[str](), EVENT: frozenset[str](), ONCE: frozenset({"startDate"})}

# A function has one set of inputs, and its clients use two or three sets of types. An encoder with five inputs takes
# about 7 kB, with the 64 inputs that a manifest may have 37 kB: 19 MB when full of these.
_ENCODERS_KEPT: Final = 512
_INPUTS_KEPT: Final = 512


@lru_cache(maxsize=16)  # one registry has one name
def registry_domain(protocol_name: str) -> Domain:
    """The EIP-712 domain of every trigger and deactivation."""
    return Domain(name=f"{protocol_name} Protocol - Registry", version="1")


# --- types ----------------------------------------------------------------------------------------


def types_for(inputs: Mapping[str, str], config_type: int) -> Types:
    """The types of `/triggers/sign-params`: Trigger, Input, Config, then Token and TokenAmount if they are used.

    `inputs` maps the names of the manifest's inputs to their type words, in the manifest's order. `config_type`
    is `CRON`, `EVENT` or `ONCE`.
    """
    structs = {PRIMARY: _TRIGGER, "Input": _input_of(inputs), "Config": _CONFIG[config_type], **_structs_used(inputs)}
    return {struct: _definition(members) for struct, members in structs.items()}


def check_types(types: object, inputs: Mapping[str, str], config_type: int) -> None:
    """Check a caller's types against the closed table.

    The order of members is free in Trigger and Config, whose members are found by name; Input, Token and
    TokenAmount have one order. Raises `InvalidTypedData` with a pointer that begins at `/types`.
    """
    _checked_members(types, tuple(inputs.items()), config_type)


def _checked_members(types: object, inputs: tuple[tuple[str, str], ...], config_type: int) -> tuple[_Pairs, _Pairs]:
    """The members of Trigger and of Config, after `check_types`."""
    if not isinstance(types, dict):
        raise InvalidTypedData("types is an object of struct definitions", pointer="/types")
    given = cast("dict[str, object]", types)
    fixed = _fixed(inputs)
    wanted = [PRIMARY, "Config", *fixed]
    for name in wanted:
        if name not in given:
            raise InvalidTypedData(f"types does not define {name}", pointer="/types")
    if len(given) != len(wanted):
        raise InvalidTypedData(f"types must define only {', '.join(wanted)}", pointer="/types")
    trigger = _check_any_order(given[PRIMARY], PRIMARY, _TRIGGER, frozenset())
    config = _check_any_order(given["Config"], "Config", _CONFIG[config_type], _OPTIONAL[config_type])
    for name, members in fixed.items():
        if given[name] != members:
            _check_in_order(given[name], name, members)
    return trigger, config


def trigger_encoder(types: object, inputs: Mapping[str, str], config_type: int) -> Encoder:
    """The encoder for a caller's types, after `check_types`. Encoders of accepted types are cached."""
    key = types_key(types)
    kept = _kept if len(key) <= KEPT_KEY_BYTES_MAX else _kept.__wrapped__
    return kept(key, tuple(inputs.items()), config_type)


@lru_cache(maxsize=_ENCODERS_KEPT)
def _kept(key: bytes, inputs: tuple[tuple[str, str], ...], config_type: int) -> Encoder:
    trigger, config = _checked_members(msgspec.json.decode(key), inputs, config_type)
    return compile_trigger(trigger, config, _input_struct(inputs))


@lru_cache(maxsize=_INPUTS_KEPT)
def _input_struct(inputs: tuple[tuple[str, str], ...]) -> Struct:
    return compile_input(_fixed(inputs))


@lru_cache(maxsize=_INPUTS_KEPT)
def _fixed(inputs: tuple[tuple[str, str], ...]) -> Types:
    """The structs of `types_for` in which callers may change neither types nor order."""
    given = dict(inputs)
    structs = {"Input": _input_of(given), **_structs_used(given)}
    return {struct: _definition(members) for struct, members in structs.items()}


def _definition(members: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"name": name, "type": word} for name, word in members.items()]


def _input_of(inputs: Mapping[str, str]) -> dict[str, str]:
    """The members of Input. Wallets cannot sign the types `uint` and `int`: EIP-712 types have a size."""
    bare = {"int": "int256", "uint": "uint256"}
    return {name: bare.get(word, word) for name, word in inputs.items()}


def _structs_used(inputs: Mapping[str, str]) -> dict[str, dict[str, str]]:
    words = set(inputs.values())
    if "TokenAmount" in words:
        return {"Token": TOKEN, "TokenAmount": TOKEN_AMOUNT}
    return {"Token": TOKEN} if "Token" in words else {}


def _check_in_order(given: object, struct: str, definition: list[dict[str, str]]) -> None:
    wanted = _read_members(definition, struct)
    for index, (member, due) in enumerate(zip_longest(_read_members(given, struct), wanted)):
        if member != due:
            detail = f"{struct} has {f'{due[0]} of type {due[1]}' if due else 'no member'} here"
            raise InvalidTypedData(detail, pointer=f"/types/{struct}" + (f"/{index}" if member else ""))


def _check_any_order(given: object, struct: str, wanted: Mapping[str, str], optional: frozenset[str]) -> _Pairs:
    members = _read_members(given, struct)
    seen: set[str] = set()
    for index, (name, word) in enumerate(members):
        pointer = f"/types/{struct}/{index}"
        if name not in wanted:
            raise InvalidTypedData(f"{struct} has no such member", pointer=f"{pointer}/name")
        if name in seen:
            raise InvalidTypedData("a struct repeats a member name", pointer=f"{pointer}/name")
        if word != wanted[name] and word not in _ALSO.get(name, ()):
            raise InvalidTypedData(f"{name} must have a type such as {wanted[name]}", pointer=f"{pointer}/type")
        seen.add(name)
    for name in wanted:
        if name not in seen and name not in optional:
            raise InvalidTypedData(f"{struct} lacks its member {name}", pointer=f"/types/{struct}")
    return members


def _read_members(given: object, struct: str) -> list[tuple[str, str]]:
    """The members as pairs of name and type, without other keys."""
    if not isinstance(given, list):
        raise InvalidTypedData("a struct is an array of members", pointer=f"/types/{struct}")
    pairs: list[tuple[str, str]] = []
    for index, item in enumerate(cast("list[object]", given)):
        member = cast("dict[str, object]", item) if isinstance(item, dict) else {}
        name, word = member.get("name"), member.get("type")
        if member.keys() != {"name", "type"} or not isinstance(name, str) or not isinstance(word, str):
            detail = "a member is an object of exactly name and type, both strings"
            raise InvalidTypedData(detail, pointer=f"/types/{struct}/{index}")
        pairs.append((name, word))
    return pairs


# --- values ---------------------------------------------------------------------------------------


def trigger_hash(types: object, values: object, inputs: Mapping[str, str]) -> bytes:
    """EIP-712 `hashStruct` of a trigger, 32 bytes, after every check of its types and values.

    Raises `InvalidTypedData` with a pointer that begins at `/types` or `/values`.
    """
    return trigger_encoder(types, inputs, config_type_of(values)).struct_hash(values)


def config_type_of(values: object) -> int:
    """The variant of the config in `values`. Raises `InvalidTypedData`."""
    config = object_at(object_at(values, "/values").get("config"), "/values/config")
    config_type = config.get("type")
    if type(config_type) is not int or config_type not in _CONFIG:
        detail = "the type of a config is the integer 0 (cron), 1 (event) or 2 (once)"
        raise InvalidTypedData(detail, pointer="/values/config/type")
    return config_type


def message(values: Mapping[str, Any], inputs: Mapping[str, str]) -> dict[str, Any]:
    """`values` that passed `trigger_hash`, for `/triggers/sign-params`: each address with its checksum (EIP-55)."""
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


# --- deactivation ---------------------------------------------------------------------------------


def deactivation_text(trigger_sigs: Sequence[Signature]) -> str:
    """The text of a deactivation for `personal_sign`: the canonical signatures in the posted order, joined by `,`."""
    return ",".join(trigger_sigs)


def deactivation_digests(trigger_sigs: Sequence[Signature], domain: Domain) -> tuple[bytes, bytes]:
    """The two digests that an owner can sign to deactivate triggers: text (EIP-191) and typed data (EIP-712)."""
    as_text = personal_digest(deactivation_text(trigger_sigs).encode("ascii"))
    struct_hash = compile_types(DEACTIVATE_TYPES, DEACTIVATE).struct_hash({"triggerSigs": list(trigger_sigs)})
    return as_text, digest(domain, struct_hash)
