"""The operations of triggers: registration, look-up, and what to sign."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from muniment.chains.units import catalogue_of
from muniment.protocol import errors
from muniment.protocol.errors import (
    ClockInDoubt,
    DeactivationNotFound,
    Invalid,
    NotTheOwner,
    Refusal,
    TriggerNotFound,
    UnknownFunction,
)
from muniment.protocol.evm.address import Address
from muniment.protocol.evm.signature import Signature
from muniment.protocol.triggers import rules
from muniment.protocol.triggers.preview import preview_of
from muniment.protocol.triggers.typed_data import (
    DEACTIVATE,
    DEACTIVATE_TYPES,
    ONCE,
    PRIMARY,
    config_type_of,
    deactivation_text,
    message,
    registry_domain,
    types_for,
)
from muniment.protocol.triggers.types import (
    Deactivation,
    DeactivationMessage,
    DeactivationParams,
    DeactivationSignParams,
    DeactivationTypedData,
    DomainShown,
    NewTrigger,
    Preview,
    RecordedDeactivation,
    SignParams,
    Trigger,
    TriggerParams,
    Values,
)
from muniment.protocol.wire import decode_text, encode, iso_time
from muniment.service.context import Context
from muniment.service.http.openapi import LISTED, TAGGED
from muniment.service.http.operation import Answer, operation
from muniment.service.http.paging import answer_page
from muniment.service.http.reply import JSON, Ready, Streamed, etag_matches
from muniment.service.http.request import Request
from muniment.service.resources.triggers import store
from muniment.service.resources.triggers.listing import TriggerQuery, search
from muniment.service.running.limits.costs import CONTENT, DEACTIVATION, PAGE, Shed
from muniment.service.running.limits.policies import NEW_TRIGGER

if TYPE_CHECKING:
    from muniment.protocol.ipfs.cid import Cid
    from muniment.service.storage.database import Transaction


@operation("POST", "/triggers/deactivate", cost=DEACTIVATION, sheds=Shed.NEVER, refuses=(TriggerNotFound, NotTheOwner))
async def deactivate_triggers(context: Context, body: Deactivation) -> None:
    """Deactivate triggers permanently.

    All or none. The owner of every listed trigger signs the list in its posted order: EIP-712
    `Deactivate(string[] triggerSigs)` under the domain of the triggers, or EIP-191 over the signatures joined by
    commas. Triggers that are deactivated already do not change.
    """
    sigs, signature, now_ms = body.trigger_sigs, body.signature, context.clock.now_ms()
    rules.check_distinct(sigs)

    async def deactivate(transaction: Transaction) -> int:
        listed = await store.fetch_listed(transaction, sigs)
        form = rules.deactivation_form(
            sigs, signature, {each.signer for each in listed}, {each.protocol for each in listed}
        )
        active = [each for each in listed if not each.deactivated]
        for each in active:
            trigger = msgspec.json.decode(each.record, type=Trigger, dec_hook=decode_text)
            record = encode(rules.deactivated(trigger, signature)).decode()
            await store.deactivate(transaction, each.sig, record, now_ms)
        if active:  # so the table of deactivations never outgrows that of triggers
            first = listed[0]
            new = store.NewDeactivation(signature, first.signer, form, first.protocol, sigs, now_ms)
            await store.keep_deactivation(transaction, new)
        return len(active)

    count = await context.database.write(deactivate, order=min(sig.raw for sig in sigs), urgent=True)
    context.metrics.counter("triggers_total", outcome="deactivated").add(count)


@operation("GET", "/deactivations/{signature}", cost=4, sheds=Shed.READ, refuses=(DeactivationNotFound,))
async def get_deactivation(context: Context, signature: Signature) -> RecordedDeactivation:
    """Read a deactivation.

    It is named by the `deactivateSig` of a trigger. The answer has everything to verify the signature: the signed list
    in its order, the form, and the domain. A deactivation that ended no trigger is not recorded.
    """
    found = await store.find_deactivation(context.database, signature)
    if found is None:
        raise DeactivationNotFound("no deactivation is recorded under this signature")
    sigs = [Signature.parse("0x" + sig.hex()) for sig in found.sigs]
    domain = registry_domain(found.protocol)
    return RecordedDeactivation(
        signature=signature,
        signer=Address.from_raw(found.signer),
        domain=DomainShown(name=domain.name, version=domain.version),
        form=found.form,
        trigger_sigs=sigs,
        created_at=iso_time(found.created_at_ms),
    )


@operation("POST", "/triggers/deactivate/sign-params", cost=4, sheds=Shed.NEVER)
async def get_deactivation_sign_params(context: Context, body: DeactivationParams) -> DeactivationSignParams:
    """Compute the message to sign for a deactivation.

    Sign either `message` as text (EIP-191), or `typedData` (EIP-712), which wallets show better. Its domain is the
    domain of the triggers; deactivate triggers of several domains separately, or by text. Code that calls
    `eth_signTypedData_v4` directly must add `EIP712Domain` to the types, as for POST /triggers/sign-params.
    """
    rules.check_distinct(body.trigger_sigs)
    protocols = {*(await store.fetch_protocols(context.database, body.trigger_sigs)).values()}
    rules.check_one_protocol(protocols)
    domain = registry_domain(next(iter(protocols), context.settings.protocol_name))
    typed_data = DeactivationTypedData(
        domain=DomainShown(name=domain.name, version=domain.version),
        primary_type=DEACTIVATE,
        types=DEACTIVATE_TYPES,
        message=DeactivationMessage(trigger_sigs=body.trigger_sigs),
    )
    return DeactivationSignParams(message=deactivation_text(body.trigger_sigs), typed_data=typed_data)


_CONFIG_REFUSALS = (errors.InvalidTypedData, errors.InvalidConfig, errors.InvalidTimestamp, UnknownFunction)


@operation("GET", "/triggers", cost=PAGE, sheds=Shed.PAGE, answers=LISTED)
async def list_triggers(context: Context, request: Request, query: TriggerQuery) -> Ready[list[Trigger]] | Streamed:
    """List triggers.

    Newest first unless `sort=1`. A page after a `cursor` has at most 1 MiB and may have fewer records than its limit:
    a `next` link leads on. Following `next` links with `sort=1` returns every trigger exactly once.
    """
    reader = context.list_reader()
    numbers = context.epochs.numbers(reader, "triggers")
    client = context.clients.address(request)
    return await answer_page(request, query, numbers, lambda: search(reader, query, context.clock.now_ms, client))


@operation(
    "GET", "/triggers/{sig}", cost=CONTENT, sheds=Shed.READ, refuses=(TriggerNotFound,),
    answers=TAGGED, headers_read={"if-none-match": "ETags that the client has"},
)  # fmt: skip
async def get_trigger(context: Context, request: Request, sig: Signature) -> Ready[Trigger]:
    """Read a trigger.

    Any spelling of the signature finds it. The ETag changes when the trigger is deactivated.
    """
    found = await store.find(context.database, sig)
    if found is None:
        raise TriggerNotFound("no trigger is registered under this signature")
    record, is_deactivated = found
    etag = f'"{sig[2:34]}-{"deactivated" if is_deactivated else "active"}"'
    headers = (JSON, (b"etag", etag.encode()))
    if b"if-none-match" in request.named and etag_matches(request.header(b"if-none-match"), etag):
        return Ready(b"", headers, 304)
    return Ready(record.encode(), headers)


@operation(
    "POST",
    "/triggers",
    cost=10,
    sheds=Shed.LATE,
    refuses=(
        *_CONFIG_REFUSALS,
        errors.SignatureMismatch,
        errors.TriggerDeactivated,
        errors.SignatureTaken,
        ClockInDoubt,
        errors.DiskAlmostFull,
    ),
    answers={
        200: Answer("Done", headers={"idempotency-status": "`created`, or `repeated` for a consent registered before"})
    },
)
async def create_trigger(context: Context, request: Request, body: NewTrigger) -> Ready[Trigger]:
    """Register a signed trigger.

    A repeated consent, also under another valid signature, returns the record first stored, with
    `Idempotency-Status: repeated`. A new one has at most
    128 KiB, unless the operator sets another limit.
    """
    values = body.typed_data.values
    inputs = await _inputs(context, values.function_cid, "/typedData/values/functionCid")
    consent = rules.signed_consent(body, inputs, registry_domain(context.settings.protocol_name))
    signer = body.signer.raw
    (now_ms, doubt), owner = context.clock.look(), context.limiter.owner(signer)
    try:
        rules.check_size(_length(request, body), context.settings.trigger_bytes_max)
        _check_config(context, values.config, now_ms, "/typedData/values/config")
        if doubt is not None:
            raise doubt.refusal()
        context.disk.require()
        owner.check(NEW_TRIGGER)
    except Refusal:
        # A registered consent returns its record, even if it would be refused today. For a consent that passes, the
        # transaction finds the record.
        known = await store.find_consent(context.database, signer, consent.digest)
        if known is None:
            raise
        return _registered(context, store.Kept(known, is_new=False))
    new = store.NewRow(
        body.sig.raw, signer, consent.digest, values.function_cid.digest, context.settings.protocol_name,
        rules.end_date_ms(values.config), now_ms, lambda at_ms: encode(rules.record_of(body, at_ms)).decode(),
    )  # fmt: skip
    kept = await context.database.write(store.insertion(new))
    if kept.is_new:  # a record that existed is free
        owner.owe(NEW_TRIGGER)
    return _registered(context, kept)


@operation("POST", "/triggers/sign-params", cost=4, sheds=Shed.LATE, refuses=_CONFIG_REFUSALS)
async def get_sign_params(context: Context, body: TriggerParams) -> SignParams:
    """Compute the typed data to sign.

    For ethers and viem the answer is complete: they add `EIP712Domain` to the types. Code that calls
    `eth_signTypedData_v4` directly must add it to the wallet's types, as
    `[{"name": "name", "type": "string"}, {"name": "version", "type": "string"}]`: otherwise the wallet signs an empty
    domain, and POST /triggers answers `signature-mismatch`. Post the types and the message unchanged, without
    `EIP712Domain`, together with the signature.
    """
    inputs, values = await _checked(context, body)
    domain = registry_domain(context.settings.protocol_name)
    shown = msgspec.convert(message(rules.values_signed(values), inputs), Values, dec_hook=decode_text)
    return SignParams(
        domain=DomainShown(name=domain.name, version=domain.version),
        primary_type=PRIMARY,
        types=types_for(inputs, values.config["type"]),
        message=shown,
    )


@operation("POST", "/triggers/preview", cost=10, sheds=Shed.EARLY, refuses=_CONFIG_REFUSALS)
async def preview_trigger(context: Context, body: TriggerParams) -> Preview:
    """Describe a trigger in plain words before it is signed.

    With the next runs of its schedule, and warnings. Nothing is stored.
    """
    inputs, values = await _checked(context, body)
    domain = registry_domain(context.settings.protocol_name)
    catalogue = catalogue_of(context.chains, context.holdings.tokens.token)
    return preview_of(values, inputs, domain, context.clock.now_ms(), catalogue)


def _registered(context: Context, kept: store.Kept) -> Ready[Trigger]:
    outcome = "created" if kept.is_new else "repeated"
    context.metrics.counter("triggers_total", outcome=outcome).add()
    return Ready(kept.record.encode(), (JSON, (b"idempotency-status", outcome.encode())))


async def _checked(context: Context, body: TriggerParams) -> tuple[Mapping[str, str], Values]:
    """The function's inputs, and the values to sign, after the same checks as in POST /triggers."""
    inputs = await _inputs(context, body.function_cid, "/functionCid")
    config = dict(body.config)
    if config.get("type") == ONCE:
        config.setdefault("startDate", 0)
    values = Values(
        function_cid=body.function_cid, version=body.version, input=body.input, config=config,
        execution_fee_limit=body.execution_fee_limit, min_validations=body.min_validations,
    )  # fmt: skip
    try:
        types: Any = types_for(inputs, config_type_of(rules.values_signed(values)))
        rules.consent(types, values, inputs, registry_domain(context.settings.protocol_name))
    except Invalid as refusal:
        raise _outside_values(refusal) from None
    rules.check_signable(types, values, context.settings.trigger_bytes_max)
    _check_config(context, config, context.clock.now_ms(), "/config")
    return inputs, values


def _check_config(context: Context, config: Mapping[str, Any], now_ms: int, pointer: str) -> None:
    """`rules.check_config` for the config at `pointer` in the body."""
    try:
        rules.check_config(config, now_ms, context.chains)
    except Invalid as refusal:
        raise refusal.under(pointer) from None


def _length(request: Request, body: NewTrigger) -> int:
    """The length of the body in bytes; a chunked body counts as compact JSON."""
    return request.received if b"content-length" in request.named else len(encode(body))


def _outside_values(refusal: Invalid) -> Invalid:
    """The refusal, with pointers for a body that has the values at its top level."""
    faults = [
        errors.Fault(fault.detail, pointer=(fault.pointer or "").removeprefix("/values")) for fault in refusal.faults
    ]
    return type(refusal)(refusal.detail, faults=faults, facts=refusal.facts)


async def _inputs(context: Context, cid: Cid, pointer: str) -> Mapping[str, str]:
    inputs = await context.find_inputs(cid.digest)
    if inputs is None:
        raise UnknownFunction(f"function {cid} is not registered here; deploy it first", pointer=pointer)
    return inputs


OPERATIONS = (
    get_trigger, list_triggers, create_trigger, get_sign_params, preview_trigger, deactivate_triggers, get_deactivation,
    get_deactivation_sign_params,
)  # fmt: skip
