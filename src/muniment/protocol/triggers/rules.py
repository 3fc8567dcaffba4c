"""The rules for a trigger: for its signature and, for a new consent, for its config at the present time. Pure."""

from __future__ import annotations

from collections.abc import Collection, Container, Mapping
from typing import Any, Final

import msgspec

from muniment.protocol.errors import (
    BodyTooLarge,
    Invalid,
    InvalidBody,
    InvalidConfig,
    InvalidTimestamp,
    NotTheOwner,
    SignatureMismatch,
)
from muniment.protocol.evm.address import Address
from muniment.protocol.evm.signature import Signature, is_by, recover
from muniment.protocol.evm.typed_data import Domain, digest
from muniment.protocol.triggers.schedule import check_cron, check_delta
from muniment.protocol.triggers.typed_data import EVENT, deactivation_digests, registry_domain, trigger_hash
from muniment.protocol.triggers.types import (
    DESCRIPTION_LENGTH_MAX,
    SIG,
    SIGNER,
    DeactivationForm,
    NewTrigger,
    Trigger,
    TriggerSigs,
    TypedData,
    Types,
    Values,
)
from muniment.protocol.wire import TIMESTAMP_MS_MAX, encode, iso_time

# The topics of an EVM log (Yellow Paper, section 4.4.1), and the choices for one topic in a filter.
TOPIC_POSITIONS_MAX: Final = 4
TOPIC_CHOICES_MAX: Final = 100
# Bytes around the typed data in the body of a new trigger, with the longest description: four bytes per character.
_AROUND_BYTES_MAX: Final = len(
    encode({"description": "\U0001f600" * DESCRIPTION_LENGTH_MAX, "typedData": 0, "sig": SIG, "signer": SIGNER})
)
# 2001-09-09 in milliseconds. A time in seconds stays below this number for the next 30,000 years.
SECONDS_BELOW: Final = 1_000_000_000_000


class Consent(msgspec.Struct, frozen=True):
    """The EIP-712 hashes of a signed trigger."""

    struct_hash: bytes
    digest: bytes


def values_signed(values: Values) -> dict[str, Any]:
    """`values` as the object to hash, with its members in the order of `/triggers/sign-params`."""
    return {
        "functionCid": str(values.function_cid), "version": str(values.version), "input": values.input,
        "config": values.config, "executionFeeLimit": values.execution_fee_limit,
        "minValidations": values.min_validations,
    }  # fmt: skip


def consent(types: Types, values: Values, inputs: Mapping[str, str], domain: Domain) -> Consent:
    """The consent to a trigger, after every check of its types and values.

    Raises `InvalidTypedData` with a pointer that begins at `/types` or `/values`.
    """
    struct_hash = trigger_hash(types, values_signed(values), inputs)
    return Consent(struct_hash, digest(domain, struct_hash))


def signed_consent(new: NewTrigger, inputs: Mapping[str, str], domain: Domain) -> Consent:
    """The consent in `new`, after verifying the signature over its typed data.

    Raises `InvalidTypedData`, and `SignatureMismatch` with the hashes computed here.
    """
    try:
        given = consent(new.typed_data.types, new.typed_data.values, inputs, domain)
    except Invalid as refusal:
        raise refusal.under("/typedData") from None
    if not is_by(new.signer, given.digest, new.sig):
        raise SignatureMismatch(
            "sig is not by signer over this typed data under this registry's domain",
            pointer="/sig",
            facts={
                "domainSeparator": "0x" + domain.separator.hex(),
                "structHash": "0x" + given.struct_hash.hex(),
                "digest": "0x" + given.digest.hex(),
            },
        )
    return given


def check_size(length: int, bytes_max: int) -> None:
    """Raise `BodyTooLarge` unless the body of a new trigger, `length` bytes, has at most `bytes_max`."""
    if length > bytes_max:
        raise BodyTooLarge(f"a new trigger has at most {bytes_max} bytes, this body has {length}")


def check_signable(types: Types, values: Values, bytes_max: int) -> None:
    """Raise `BodyTooLarge` unless a trigger with this typed data and any description fits into `bytes_max`.

    The body counts as compact JSON in UTF-8.
    """
    length = len(encode(TypedData(types, values))) + _AROUND_BYTES_MAX
    if length > bytes_max:
        raise BodyTooLarge(f"POST /triggers takes at most {bytes_max} bytes; with this typed data it can be {length}")


def check_config(config: Mapping[str, Any], now_ms: int, chains: Container[int]) -> None:
    """Check the config of a new consent by the rules that depend on the time and on the configured chains.

    `config` has the members and JSON types of its variant. Raises `InvalidConfig` and `InvalidTimestamp`, with a
    pointer into the config.
    """
    for name, rule in (("schedule", check_cron), ("delta", check_delta)):
        if name in config:
            try:
                rule(config[name])
            except Invalid as refusal:
                raise refusal.under(f"/{name}") from None
    end_ms = _timestamp(config, "endDate")
    if end_ms and end_ms <= now_ms:
        raise InvalidTimestamp(f"endDate is in the past{_hint(end_ms)}", pointer="/endDate")
    if config["type"] == EVENT:
        _check_event(config, chains)
    if _timestamp(config, "startDate") > end_ms > 0:
        raise InvalidConfig("startDate is after endDate", pointer="/startDate")


def _check_event(config: Mapping[str, Any], chains: Container[int]) -> None:
    if int(config["chainId"]) not in chains:
        raise InvalidConfig(f"chain {config['chainId']} is not configured here", pointer="/chainId")
    topics: list[list[str]] = config["topics"]
    if len(topics) > TOPIC_POSITIONS_MAX:
        raise InvalidConfig(f"a log has at most {TOPIC_POSITIONS_MAX} topics", pointer="/topics")
    for position, choices in enumerate(topics):
        if len(choices) > TOPIC_CHOICES_MAX:
            raise InvalidConfig(f"a position has at most {TOPIC_CHOICES_MAX} topics", pointer=f"/topics/{position}")


def end_date_ms(config: Mapping[str, Any]) -> int:
    """The end of a trigger in milliseconds since 1970, 0 for none. Raises `InvalidTimestamp`."""
    return _timestamp(config, "endDate")


def _timestamp(config: Mapping[str, Any], name: str) -> int:
    """A time of the config, which is a JSON integer or a decimal string; 0 if absent."""
    value = int(config.get(name, 0))
    if not 0 <= value <= TIMESTAMP_MS_MAX:
        raise InvalidTimestamp(f"{name} is in milliseconds since 1970, at most {TIMESTAMP_MS_MAX}", pointer=f"/{name}")
    return value


def _hint(timestamp_ms: int) -> str:
    """A hint for a time that is probably in seconds."""
    if timestamp_ms >= SECONDS_BELOW:
        return ""
    return f"; it looks like seconds, not milliseconds: {timestamp_ms * 1000}?"


def record_of(new: NewTrigger, created_at_ms: int) -> Trigger:
    """The record of a new trigger."""
    values = new.typed_data.values
    return Trigger(
        sig=new.sig, function_cid=values.function_cid, signer=new.signer, version=values.version,
        description=new.description, created_at=iso_time(created_at_ms), input=values.input, config=values.config,
        execution_fee_limit=values.execution_fee_limit, min_validations=values.min_validations,
        types=new.typed_data.types, end_date=end_date_ms(values.config),
    )  # fmt: skip


def deactivated(trigger: Trigger, signature: Signature) -> Trigger:
    """The record of a trigger with the signature of its deactivation; an earlier signature stays."""
    if trigger.deactivate_sig is not msgspec.UNSET:
        return trigger
    return msgspec.structs.replace(trigger, deactivate_sig=signature)


def deactivation_form(
    trigger_sigs: TriggerSigs, signature: Signature, owners: set[bytes], protocols: Collection[str]
) -> DeactivationForm:
    """The form in which the triggers' owner signed their deactivation: text (EIP-191) or typed data (EIP-712).

    `owners` are raw addresses; `protocols` are the protocol names under which the triggers were signed. Raises
    `NotTheOwner`, and `InvalidBody` for typed data over triggers of several names, since it has one domain.
    """
    digests = [deactivation_digests(trigger_sigs, registry_domain(name)) for name in sorted(protocols)]
    as_text = recover(digests[0][0], signature)
    if as_text is not None and owners == {as_text.raw}:
        return "eip191"
    found = (recover(as_typed_data, signature) for _, as_typed_data in digests)
    check_owner(owners, frozenset(address for address in found if address is not None))
    check_one_protocol(protocols)
    return "eip712"


def check_one_protocol(protocols: Collection[str]) -> None:
    """Raise `InvalidBody` for several protocol names: typed data can name only one."""
    if len(protocols) > 1:
        raise InvalidBody(
            f"these triggers were signed under several protocol names ({', '.join(sorted(protocols))}), and typed data "
            "has one: deactivate the triggers of each name separately, or sign the list as text (EIP-191)",
            pointer="/triggerSigs",
        )


def check_owner(owners: set[bytes], signers: frozenset[Address]) -> None:
    """Raise `NotTheOwner` unless one of `signers` owns every trigger; `owners` are raw addresses."""
    if not any(owners == {signer.raw} for signer in signers):
        raise NotTheOwner("the signature is not by the owner of every listed trigger over this list in this order")


def check_distinct(trigger_sigs: TriggerSigs) -> None:
    """Raise `InvalidBody` for a trigger that is listed twice, also in different spellings."""
    for index, sig in enumerate(trigger_sigs):
        if sig in trigger_sigs[:index]:
            raise InvalidBody("a trigger is listed twice", pointer=f"/triggerSigs/{index}")
