"""The endpoints of the triggers slice."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from muniment import errors
from muniment.context import Context
from muniment.errors import Invalid, TriggerNotFound, UnknownFunction
from muniment.evm.signature import Signature
from muniment.http.operation import Answer, operation
from muniment.http.paging import next_link
from muniment.http.reply import JSON, Ready, etag_matches
from muniment.http.request import Request
from muniment.triggers import rules, store
from muniment.triggers.listing import TriggerQuery, search
from muniment.triggers.preview import preview_of
from muniment.triggers.typed_data import (
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
from muniment.triggers.types import (
    Deactivation,
    DeactivationMessage,
    DeactivationParams,
    DeactivationSignParams,
    DeactivationTypedData,
    DomainShown,
    NewTrigger,
    Preview,
    SignParams,
    Trigger,
    TriggerParams,
    Values,
)
from muniment.wire import decode_text, encode

if TYPE_CHECKING:
    from muniment.ipfs.cid import Cid
    from muniment.storage.database import Transaction

_CONFIG_REFUSALS = (errors.InvalidTypedData, errors.InvalidConfig, errors.InvalidTimestamp, UnknownFunction)


@operation("GET", "/triggers", at_once=True)
async def list_triggers(context: Context, request: Request, query: TriggerQuery) -> Ready[list[Trigger]]:
    """List triggers.

    Newest first unless `sort=1`. Following the `next` links with `sort=1` misses no trigger and shows none twice.
    """
    page = await search(context.reads(request), query, context.now_ms())
    link = next_link("/triggers", request.scope["query_string"], page, query, query.sort)
    return Ready(page.body(), (JSON, *link))


@operation(
    "GET", "/triggers/{sig}", refuses=(TriggerNotFound,),
    answers={304: Answer("Not modified")}, reads={"if-none-match": "ETags that the client has"},
    at_once=True,
)  # fmt: skip
async def get_trigger(context: Context, request: Request, sig: Signature) -> Ready[Trigger]:
    """Read a trigger.

    Any spelling of the signature finds it. The ETag changes when it is deactivated.
    """
    found = await store.find(context.reads(request), sig)
    if found is None:
        raise TriggerNotFound("no trigger is registered under this signature")
    record, is_deactivated = found
    etag = f'"{sig[2:34]}-{"deactivated" if is_deactivated else "active"}"'
    headers = (JSON, (b"etag", etag.encode()))
    if etag_matches(request.header(b"if-none-match"), etag):
        return Ready(b"", headers, 304)
    return Ready(record.encode(), headers)


@operation(
    "POST",
    "/triggers",
    refuses=(*_CONFIG_REFUSALS, errors.SignatureMismatch, errors.TriggerDeactivated, errors.SignatureTaken),
)
async def create_trigger(context: Context, body: NewTrigger) -> Ready[Trigger]:
    """Register a signed trigger.

    The same consent again, also under another valid signature, is answered with the record first stored.
    """
    values = body.typed_data.values
    inputs = await _inputs(context, values.function_cid, "/typedData/values/functionCid")
    consent = rules.signed_consent(body, inputs, registry_domain(context.settings.protocol_name))
    now_ms = context.now_ms()
    try:
        rules.check_config(values.config, now_ms, context.chains)
    except Invalid as refusal:
        # What was acceptable once is answered with its record; what is acceptable now, the transaction looks for.
        known = await store.find_consent(context.database, body.signer, consent.digest)
        if known is None:
            raise refusal.under("/typedData/values/config") from None
        return Ready(known.encode())

    def record_at(created_at_ms: int) -> str:
        return encode(rules.record_of(body, created_at_ms)).decode()

    new = store.NewRow(
        body.sig, body.signer, consent.digest, values.function_cid.digest, context.settings.protocol_name,
        rules.end_date_ms(values.config), now_ms, record_at,
    )  # fmt: skip
    record = await context.database.write(lambda tx: store.insert(tx, new))
    return Ready(record.encode())


@operation("POST", "/triggers/sign-params", refuses=_CONFIG_REFUSALS)
async def get_sign_params(context: Context, body: TriggerParams) -> SignParams:
    """Compute the typed data to sign.

    The answer goes to the wallet as it is, and its types and message, with the signature, to POST /triggers.
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


@operation("POST", "/triggers/preview", refuses=_CONFIG_REFUSALS)
async def preview_trigger(context: Context, body: TriggerParams) -> Preview:
    """Say in plain words what a trigger would let happen.

    With the next run times of a schedule, and warnings. Nothing is stored.
    """
    _, values = await _checked(context, body)
    return preview_of(values, registry_domain(context.settings.protocol_name), context.now_ms())


@operation("POST", "/triggers/deactivate", refuses=(TriggerNotFound, errors.NotTheOwner))
async def deactivate_triggers(context: Context, body: Deactivation) -> None:
    """Deactivate triggers for ever.

    All or none. The signature is by the owner of every listed trigger, over the list in its posted order: EIP-712
    `Deactivate(string[] triggerSigs)`, or EIP-191 over the signatures joined by commas.
    """
    rules.check_distinct(body.trigger_sigs)
    protocol, now_ms = context.settings.protocol_name, context.now_ms()
    signers = rules.deactivation_signers(body.trigger_sigs, body.signature, registry_domain(protocol))

    async def deactivate(transaction: Transaction) -> None:
        listed = await store.fetch_listed(transaction, body.trigger_sigs)
        owners = {each.signer for each in listed}
        rules.check_owner(owners, signers)
        for each in listed:
            if not each.deactivated:
                trigger = msgspec.json.decode(each.record, type=Trigger, dec_hook=decode_text)
                record = encode(rules.deactivated(trigger, body.signature)).decode()
                await store.deactivate(transaction, each.sig, record)
        (owner,) = owners
        await store.keep_deactivation(transaction, body.signature, owner, protocol, body.trigger_sigs, now_ms)

    await context.database.write(deactivate, order=min(sig.raw for sig in body.trigger_sigs))


@operation("POST", "/triggers/deactivate/sign-params")
async def get_deactivation_sign_params(context: Context, body: DeactivationParams) -> DeactivationSignParams:
    """Compute what to sign to deactivate triggers.

    Either of the two: `message` as text (EIP-191), or `typedData` (EIP-712), which wallets show better.
    """
    rules.check_distinct(body.trigger_sigs)
    domain = registry_domain(context.settings.protocol_name)
    typed_data = DeactivationTypedData(
        domain=DomainShown(name=domain.name, version=domain.version),
        primary_type=DEACTIVATE,
        types=DEACTIVATE_TYPES,
        message=DeactivationMessage(trigger_sigs=body.trigger_sigs),
    )
    return DeactivationSignParams(message=deactivation_text(body.trigger_sigs), typed_data=typed_data)


async def _checked(context: Context, body: TriggerParams) -> tuple[Mapping[str, str], Values]:
    """The function's inputs, and the values to sign after every check that POST /triggers will make."""
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
    try:
        rules.check_config(config, context.now_ms(), context.chains)
    except Invalid as refusal:
        raise refusal.under("/config") from None
    return inputs, values


def _outside_values(refusal: Invalid) -> Invalid:
    """The refusal with pointers into a body that has the values at its top."""
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
    get_trigger, list_triggers, create_trigger, get_sign_params, preview_trigger, deactivate_triggers,
    get_deactivation_sign_params,
)  # fmt: skip
