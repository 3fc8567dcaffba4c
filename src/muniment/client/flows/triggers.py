"""Triggers: sign one, register it, find it, end it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from msgspec import UNSET, field
from msgspec.structs import replace

from muniment.client import proof
from muniment.client.answers import Page, check_length, decode
from muniment.client.failures import Forged
from muniment.client.flows import functions
from muniment.client.flows.following import Follower
from muniment.client.flows.listing import LastPart, OnForged, proved_page
from muniment.client.flows.session import POSTED, check_same, target
from muniment.client.signers import sign_typed_data
from muniment.client.steps import Flow, Send
from muniment.protocol.errors import Absent, DeactivationNotFound, InvalidCid
from muniment.protocol.evm.address import Address
from muniment.protocol.evm.signature import Signature
from muniment.protocol.evm.typed_data import Domain
from muniment.protocol.forms import decode_record
from muniment.protocol.ipfs.cid import Cid
from muniment.protocol.triggers.amounts import kinds_of_inputs
from muniment.protocol.triggers.preview import preview_of
from muniment.protocol.triggers.rules import consent, values_signed
from muniment.protocol.triggers.typed_data import (
    DEACTIVATE,
    DEACTIVATE_TYPES,
    check_input_names,
    config_type_of,
    message,
    registry_domain,
    types_for,
)
from muniment.protocol.triggers.types import (
    TRIGGER_SIGS_MAX,
    Description,
    NewTrigger,
    Preview,
    RecordedDeactivation,
    Trigger,
    TriggerParams,
    TypedData,
    Values,
)
from muniment.protocol.wire import Amount, encode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from muniment.client.flows.session import Session
    from muniment.protocol.functions.rules import Manifest

# A trigger with its signature: the body of POST /triggers. It may be made on one machine and posted from another.
SignedTrigger = NewTrigger
# One US dollar: without a limit a relayer may set any price. "0" is no limit.
FEE_LIMIT: Final = str(10**18)


class TriggerDraft(TriggerParams, frozen=True, kw_only=True):
    """A trigger to be signed; the description is not signed. Without a limit given, a run costs at most one dollar."""

    description: Description
    execution_fee_limit: Amount = field(default_factory=lambda: Amount(FEE_LIMIT))

    @classmethod
    def of(
        cls,
        function_cid: str,
        *,
        config: Mapping[str, Any],
        input: Mapping[str, Any] | None = None,
        version: str = "1.0.0",
        execution_fee_limit: str = FEE_LIMIT,
        min_validations: int = 1,
        description: str = "Signed with the Python client",
    ) -> TriggerDraft:
        """A draft from plain values, each checked. Raises the `Invalid` of the member that is wrong.

        `execution_fee_limit` is in US dollars × 10^18; "0" is no limit.
        """
        members = {
            "functionCid": function_cid, "config": {**config}, "input": {**(input or {})}, "version": version,
            "executionFeeLimit": execution_fee_limit, "minValidations": min_validations, "description": description,
        }  # fmt: skip
        return decode_record(members, cls)


def sign(session: Session, draft: TriggerDraft) -> Flow[SignedTrigger]:
    """The trigger with its signature, over types that are built here from the proved manifest.

    Raises `InvalidTypedData` for inputs that the function does not have, and `NotSignedBy`.
    """
    types, values, domain = yield from _checked(session, draft)
    signer = session.signing_address()
    data = {
        "domain": {"name": domain.name, "version": domain.version}, "primaryType": "Trigger",
        "types": types, "message": values_signed(values),
    }  # fmt: skip
    signature = yield from sign_typed_data(signer, data)
    return SignedTrigger(
        description=draft.description, typed_data=TypedData(types=types, values=values), sig=signature, signer=signer
    )


def preview(session: Session, draft: TriggerDraft) -> Flow[Preview]:
    """A draft in plain words, made here.

    Raises the refusal that its registration would get, also for what only the service knows, such as its chains.
    """
    from muniment.chains.units import packaged_catalogue  # noqa: PLC0415 - only a preview reads the list of tokens

    types, values, domain = yield from _checked(session, draft)
    params = TriggerParams(**{name: getattr(draft, name) for name in TriggerParams.__struct_fields__})
    yield from session.answered(Send("POST", "/triggers/sign-params", encode(params), POSTED))
    kinds = kinds_of_inputs(types)
    return preview_of(values, kinds, domain, time.time_ns() // 1_000_000, packaged_catalogue())


def create(
    session: Session, trigger: TriggerDraft | SignedTrigger, on_repeated: Callable[[Trigger], None] | None = None
) -> Flow[Trigger]:
    """Register a trigger; a repetition returns the first record, and calls `on_repeated` with it.

    Raises `Forged` if the answer is another trigger.
    """
    signed = trigger if isinstance(trigger, SignedTrigger) else (yield from sign(session, trigger))
    reply = yield from session.answered(Send("POST", "/triggers", encode(signed), POSTED))
    created = decode(reply, Trigger)
    # A signature recovers to some address for any content, so it identifies no trigger by itself.
    check_same(created.signer, signed.signer, "signer")
    if created.sig != signed.sig:
        yield from _check_consent(session, created, signed)
    proved = yield from _proved(session, created)
    if on_repeated is not None and reply.headers.get("idempotency-status") == "repeated":
        on_repeated(proved)
    return proved


def _check_consent(session: Session, created: Trigger, signed: SignedTrigger) -> Flow[None]:
    """Check that a record has the consent that `signed` has, under another signature.

    A wallet may sign a consent twice with two signatures. The service keeps the first one.
    """
    manifest = yield from functions.manifest(session, signed.typed_data.values.function_cid)
    try:
        proof.check_trigger(replace(created, sig=signed.sig), manifest.inputs, session.protocol)
    except Forged:
        raise Forged(f"asked for the trigger {signed.sig}, but got {created.sig}") from None


def get(session: Session, sig: str, signer: str | None = None) -> Flow[Trigger]:
    """The trigger with this signature, by `signer` where that is given."""
    asked = Signature.parse(sig)
    trigger = yield from session.read(target("/triggers/{}", asked), Trigger)
    check_same(trigger.sig, asked, "trigger")
    if signer is not None:
        check_same(trigger.signer, Address.parse(signer), "signer")
    return (yield from _proved(session, trigger))


def page(
    session: Session,
    cursor: str | None,
    filters: Mapping[str, object],
    sort: int = 1,
    limit: int = 100,
    on_forged: OnForged = None,
) -> Flow[Page[Trigger]]:
    """A page of triggers. That it is complete is a claim.

    `sort` is 1 for the oldest first, -1 for the newest first. A forged trigger is raised, or given to `on_forged` and
    left out.
    """

    def check(trigger: Trigger) -> Flow[LastPart]:
        _check_listed(trigger, filters)
        if not session.verifies:
            return None
        manifest = yield from _manifest_of(session, trigger)
        digest = proof.checked_digest(trigger, manifest.inputs, session.protocol)
        # One recovery reads a megabyte of tables, which displace all else from the caches of the processor: a page with
        # its recoveries at its end takes a tenth less time.
        return partial(proof.check_signature, trigger, digest, session.protocol)

    asked = target("/triggers", sort=sort, limit=limit, cursor=cursor, **filters)
    return proved_page(session, asked, limit, lambda reply: decode(reply, list[Trigger]), check, on_forged)


def follower(
    session: Session, after: str | None, filters: Mapping[str, object], poll_s: float, on_forged: OnForged
) -> Follower[Trigger]:
    """A place in the listing of triggers: its beginning, or after the cursor `after`."""
    return Follower(
        session, lambda cursor: page(session, cursor, filters, on_forged=on_forged), after, poll_s,
        "muniment.trigger.created", filters,
    )  # fmt: skip


def refresh(session: Session, sigs: Sequence[str]) -> Flow[dict[str, Trigger]]:
    """These triggers as they are now, by signature: listings by cursor do not show deactivations."""
    asked = [Signature.parse(sig) for sig in sigs]
    found: dict[str, Trigger] = {}
    for start in range(0, len(asked), TRIGGER_SIGS_MAX):
        some = asked[start : start + TRIGGER_SIGS_MAX]
        listed = yield from session.read(target("/triggers", sigs=some, limit=TRIGGER_SIGS_MAX), list[Trigger])
        check_length(listed, len(some))
        for trigger in listed:
            if trigger.sig not in some:
                raise Forged(f"trigger {trigger.sig} was not asked for")
            found[trigger.sig] = yield from _proved(session, trigger)
    return found


def deactivate(session: Session, sigs: Sequence[str]) -> Flow[list[RecordedDeactivation]]:
    """End triggers of this wallet, at most a hundred; idempotent. The deactivations that ended them.

    Raises `Forged` unless the service shows afterwards that they are ended.
    """
    asked = [Signature.parse(sig) for sig in sigs]
    domain = registry_domain(session.protocol)
    data: dict[str, Any] = {
        "domain": {"name": domain.name, "version": domain.version}, "primaryType": DEACTIVATE,
        "types": DEACTIVATE_TYPES, "message": {"triggerSigs": [str(sig) for sig in asked]},
    }  # fmt: skip
    signature = yield from sign_typed_data(session.signing_address(), data)
    return (yield from post_deactivation(session, asked, signature))


def post_deactivation(session: Session, sigs: Sequence[str], signature: str) -> Flow[list[RecordedDeactivation]]:
    """End triggers by a consent that was signed before; idempotent. The deactivations that ended them.

    Raises `Forged` unless the service shows afterwards that they are ended.
    """
    body = encode({"triggerSigs": [*sigs], "signature": signature})
    yield from session.answered(Send("POST", "/triggers/deactivate", body, POSTED, done=HTTPStatus.NO_CONTENT))
    asked, consent_ = [Signature.parse(sig) for sig in sigs], Signature.parse(signature)
    try:
        recorded = yield from session.read(target("/deactivations/{}", consent_), RecordedDeactivation)
    except DeactivationNotFound:
        # The service keeps no row of a consent that ended nothing: each trigger had been deactivated before.
        return (yield from _endings(session, asked))
    check_same(recorded.signature, consent_, "deactivation")
    check_same([*recorded.trigger_sigs], asked, "list of triggers")
    return [_proved_deactivation(session, recorded)]


def _endings(session: Session, sigs: Sequence[Signature]) -> Flow[list[RecordedDeactivation]]:
    """The deactivations by their signers that end each of these triggers. Raises `Forged` where one is not ended."""
    shown = yield from refresh(session, sigs)
    endings: dict[Signature, RecordedDeactivation] = {}
    for sig in sigs:
        trigger = shown.get(sig)
        if trigger is None or trigger.deactivate_sig is UNSET:
            raise Forged(f"the service accepted the deactivation of trigger {sig}, but shows the trigger as active")
        if trigger.deactivate_sig not in endings:
            try:
                endings[trigger.deactivate_sig] = yield from deactivation(session, trigger.deactivate_sig)
            except DeactivationNotFound:
                raise Forged(f"trigger {sig} names a deactivation that the service does not have") from None
        ending = endings[trigger.deactivate_sig]
        if sig not in ending.trigger_sigs or ending.signer != trigger.signer:
            raise Forged(f"deactivation {ending.signature} does not end trigger {sig}")
    return [*endings.values()]


def deactivation(session: Session, signature: str) -> Flow[RecordedDeactivation]:
    """The deactivation with this signature. Raises `Forged` for a wrong signature."""
    asked = Signature.parse(signature)
    found = yield from session.read(target("/deactivations/{}", asked), RecordedDeactivation)
    check_same(found.signature, asked, "deactivation")
    return _proved_deactivation(session, found)


def _proved_deactivation(session: Session, found: RecordedDeactivation) -> RecordedDeactivation:
    if session.verifies:
        form = proof.check_deactivation(found.trigger_sigs, found.signature, found.signer, session.protocol)
        domain = registry_domain(session.protocol)
        check_same(found.form, form, "form")
        check_same(found.domain.version, domain.version, "version of the domain")
        if form == "eip712":  # which signs the domain
            check_same(found.domain.name, domain.name, "domain")
    return found


def _checked(session: Session, draft: TriggerDraft) -> Flow[tuple[dict[str, Any], Values, Domain]]:
    """Types, values and domain of a draft, after every check that the service makes of its typed data."""
    manifest = yield from functions.manifest(session, draft.function_cid)
    values = Values.of(draft)
    given = values_signed(values)
    check_input_names(values.input, manifest.inputs)
    types = types_for(manifest.inputs, config_type_of(given))
    domain = registry_domain(session.protocol)
    consent(types, values, manifest.inputs, domain)
    shown = message(given, manifest.inputs)
    return types, replace(values, input=shown["input"], config=shown["config"]), domain


def _proved(session: Session, trigger: Trigger) -> Flow[Trigger]:
    if session.verifies:
        manifest = yield from _manifest_of(session, trigger)
        proof.check_trigger(trigger, manifest.inputs, session.protocol)
    return trigger


def _manifest_of(session: Session, trigger: Trigger) -> Flow[Manifest]:
    """The manifest of the function of a trigger. Raises `Forged` for a function that the service lacks."""
    try:
        return (yield from functions.manifest(session, trigger.function_cid))
    except (Absent, InvalidCid) as refusal:  # invalid: a CID that no function has
        if not refusal.code:  # not by a registry
            raise
        why = f"trigger {trigger.sig} uses a function that the service lacks: {refusal.detail}"
        raise Forged(why) from refusal


def _check_listed(trigger: Trigger, filters: Mapping[str, object]) -> None:
    signer, cid = filters.get("signer"), filters.get("functionCid")
    is_of_signer = signer is None or Address.parse(str(signer)) == trigger.signer
    is_of_function = cid is None or Cid.parse(str(cid)).digest == Cid.parse(trigger.function_cid).digest
    if not (is_of_signer and is_of_function):
        raise Forged(f"trigger {trigger.sig} of {trigger.signer} and {trigger.function_cid} was not asked for")
