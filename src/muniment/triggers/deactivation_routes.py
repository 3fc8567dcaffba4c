"""The operations of deactivations: the end of triggers, signed by their owner."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from muniment.context import Context
from muniment.errors import DeactivationNotFound, NotTheOwner, TriggerNotFound
from muniment.evm.address import Address
from muniment.evm.signature import Signature
from muniment.http.operation import operation
from muniment.http.request import Request
from muniment.limits.costs import DEACTIVATION, Shed
from muniment.triggers import rules, store
from muniment.triggers.typed_data import DEACTIVATE, DEACTIVATE_TYPES, deactivation_text, registry_domain
from muniment.triggers.types import (
    Deactivation,
    DeactivationMessage,
    DeactivationParams,
    DeactivationSignParams,
    DeactivationTypedData,
    DomainShown,
    RecordedDeactivation,
    Trigger,
)
from muniment.wire import decode_text, encode, iso_time

if TYPE_CHECKING:
    from muniment.storage.database import Transaction


@operation(
    "POST",
    "/triggers/deactivate",
    cost=DEACTIVATION,
    sheds=Shed.NEVER,
    refuses=(TriggerNotFound, NotTheOwner),
)
async def deactivate_triggers(context: Context, body: Deactivation) -> None:
    """Deactivate triggers permanently.

    All or none. The owner of every listed trigger signs the list in its posted order: EIP-712
    `Deactivate(string[] triggerSigs)` under the domain of the triggers, or EIP-191 over the signatures joined by
    commas. Triggers that are deactivated already do not change.
    """
    sigs, signature, now_ms = body.trigger_sigs, body.signature, context.now_ms()
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
        if active:  # so that the table of consents never outgrows the table of triggers
            first = listed[0]
            new = store.NewDeactivation(signature, first.signer, form, first.protocol, sigs, now_ms)
            await store.keep_deactivation(transaction, new)
        return len(active)

    count = await context.database.write(deactivate, order=min(sig.raw for sig in sigs), urgent=True)
    context.metrics.counter("triggers_total", outcome="deactivated").add(count)


@operation("GET", "/deactivations/{signature}", cost=4, sheds=Shed.READ, refuses=(DeactivationNotFound,))
async def get_deactivation(context: Context, request: Request, signature: Signature) -> RecordedDeactivation:
    """Read a deactivation.

    It is named by the `deactivateSig` of a trigger. The answer has everything to verify the signature: the signed list
    in its order, the form, and the domain. A deactivation that ended no trigger is not recorded.
    """
    found = await store.find_deactivation(context.reader_for(request), signature)
    if found is None:
        raise DeactivationNotFound("no deactivation is recorded under this signature")
    sigs = [Signature.parse("0x" + sig.hex()) for sig in found.sigs]
    domain = registry_domain(found.protocol)
    return RecordedDeactivation(
        signature=signature,
        signer=Address.from_raw(found.signer),
        domain=DomainShown(name=domain.name, version=domain.version),
        form=found.form or rules.deactivation_form(sigs, signature, {found.signer}, {found.protocol}),
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
    protocols = await store.fetch_protocols(context.database, body.trigger_sigs)
    rules.check_one_protocol(protocols)
    domain = registry_domain(next(iter(protocols), context.settings.protocol_name))
    typed_data = DeactivationTypedData(
        domain=DomainShown(name=domain.name, version=domain.version),
        primary_type=DEACTIVATE,
        types=DEACTIVATE_TYPES,
        message=DeactivationMessage(trigger_sigs=body.trigger_sigs),
    )
    return DeactivationSignParams(message=deactivation_text(body.trigger_sigs), typed_data=typed_data)


OPERATIONS = (deactivate_triggers, get_deactivation, get_deactivation_sign_params)
