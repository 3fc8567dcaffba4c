"""The proof that a record is in the log. Its entry is built here from the record, and never taken from an answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from muniment.client.failures import Forged
from muniment.client.flows import functions
from muniment.client.flows.log import parts
from muniment.client.flows.log.checkpoints import origin_of
from muniment.client.flows.log.entries import key_of, name_of
from muniment.client.flows.session import target
from muniment.client.steps import Flow, Send
from muniment.protocol.errors import FunctionNotFound, NothingDeactivated, Refusal, TriggerNotFound
from muniment.protocol.functions.types import Function
from muniment.protocol.log.checkpoints import check_proof, parse_proof
from muniment.protocol.log.entries import DeactivationFact, FunctionFact, TriggerFact, description_hash, parse_entry
from muniment.protocol.log.notes import VerifierKey, parse_verifier_key, verified
from muniment.protocol.log.tree import leaf_hash
from muniment.protocol.triggers.rules import consent
from muniment.protocol.triggers.typed_data import registry_domain
from muniment.protocol.triggers.types import RecordedDeactivation, Trigger, Values

if TYPE_CHECKING:
    from muniment.client.flows.session import Session
    from muniment.protocol.log.checkpoints import Proof

Provable = Trigger | Function | RecordedDeactivation


class Logged(NamedTuple):
    """Where a record is in a log: at the index `at` of `size` entries that the log has signed.

    `signed_at_s` is the signed time of the checkpoint in Unix seconds; None: the key for the time is not known. It is
    the key that the registry named first: `follow` proves it.
    """

    origin: str
    at: int
    size: int
    signed_at_s: int | None


def prove(session: Session, record: Provable, *, creator: str | None = None, vkey: str | None = None) -> Flow[Logged]:
    """Prove that a record is in the log, under the key `vkey` or those that this client saw first.

    `creator` is the wallet that deployed a function; without, the one that its record names. Raises `NotLoggedYet`, and
    `Forged` where the log has no such entry under a checkpoint that its key has signed.
    """
    path, entry = yield from _entry(session, record, creator)
    try:
        reply = yield from session.answered(Send("GET", path))
    except (TriggerNotFound, FunctionNotFound, NothingDeactivated) as error:
        raise Forged(f"the log does not have this record as you hold it: {error}") from error
    try:
        proof = parse_proof(reply.content)
        key, time_key = yield from _keys(session, proof, vkey)
        checkpoint = check_proof(proof, leaf_hash(entry), key)
    except ValueError as error:
        raise Forged(f"the log does not have this record as you hold it: {error}") from error
    _check_once(session, entry, checkpoint.origin, proof.index)
    times = verified(proof.checkpoint, [time_key]).values() if time_key else ()
    return Logged(checkpoint.origin, proof.index, checkpoint.size, max(times, default=None))


def _check_once(session: Session, entry: bytes, origin: str, index: int) -> None:
    """Raise `Forged` if this client has seen two entries of the record."""
    key = key_of(name_of(parse_entry(entry)) or "")
    if key in session.logged_twice:
        raise Forged(f"the log {origin} has two entries of this record, so that none of them counts")
    before = session.proved.get(key)
    if before is not None and before[0] == origin and before[1] != index:
        raise Forged(f"the log {origin} has two entries of this record, at the indexes {before[1]} and {index}")
    session.keep_proved(key, origin, index)


def _keys(session: Session, proof: Proof, vkey: str | None) -> Flow[tuple[VerifierKey, VerifierKey | None]]:
    """The keys that are trusted for the log of a proof."""
    origin = origin_of(proof.checkpoint)
    if vkey is not None:
        given = parse_verifier_key(vkey)
        known = session.log_keys.get(given.name)
        return given, known[1] if known and known[0] == given else None
    if origin not in session.log_keys:
        for each in (yield from parts.epochs(session)):
            session.log_keys.setdefault(each.origin, parts.keys_of(each.origin, each.vkeys))
    if origin not in session.log_keys:
        raise Forged(f"the proof is of the log {origin}, which the registry does not name")
    return session.log_keys[origin]


def _entry(session: Session, record: Provable, creator: str | None) -> Flow[tuple[str, bytes]]:
    """The path of a record's proof, and the bytes of its entry."""
    if isinstance(record, Trigger):
        return target("/triggers/{}/proof", record.sig), (yield from trigger_entry(session, record))
    if isinstance(record, Function):
        uploader = creator or str(record.creator)
        path = target("/functions/{}/proof", record.cid, creator=uploader)
        return path, function_entry(record, uploader)
    return target("/deactivations/{}/proof", record.signature), deactivation_entry(record)


def entry_of(session: Session, record: Provable, creator: str | None = None) -> Flow[bytes]:
    """The entry that the log has for a record. Raises `Forged` for a trigger that cannot have been signed."""
    try:
        return (yield from _entry(session, record, creator))[1]
    except Refusal as refusal:
        if refusal.answer is not None:  # the service may be away when the manifest of a function is asked for
            raise
        raise Forged(f"a record has no entry: {refusal}") from refusal


def trigger_entry(session: Session, trigger: Trigger) -> Flow[bytes]:
    """The entry of a trigger, under the protocol name of this client. Raises `Refusal` for an unsignable one."""
    manifest = yield from functions.manifest(session, trigger.function_cid)
    domain = registry_domain(session.protocol)
    given = consent(trigger.types, Values.of(trigger), manifest.inputs, domain)
    return TriggerFact(
        trigger.sig, trigger.signer, "0x" + given.digest.hex(), trigger.function_cid, trigger.created_at,
        description_hash(trigger.description), domain.name,
    ).data  # fmt: skip


def function_entry(function: Function, uploader: str) -> bytes:
    """The entry of a wallet that deployed a function."""
    return FunctionFact(str(function.cid), uploader, str(function.creator), function.created_at).data


def deactivation_entry(record: RecordedDeactivation) -> bytes:
    """The entry of a deactivation."""
    sigs = tuple(map(str, record.trigger_sigs))
    return DeactivationFact(record.signature, record.signer, record.created_at, record.domain.name, sigs).data
