"""Checks of answers by their own signatures, CIDs and hashes. Each raises `Forged`.

The signature of a trigger, the hash of an intent and the CID of content prove them without trust in the service.
Descriptions, times, statuses, logs, the `verified` of proposals, `deactivateSig` and complete listings are claims.
"""

from __future__ import annotations

import io
from itertools import islice
from typing import TYPE_CHECKING, Final

from msgspec import UNSET

from muniment.client.failures import Forged, NotARegistry, NotUnderName
from muniment.protocol.errors import Refusal
from muniment.protocol.evm.signature import is_by
from muniment.protocol.functions.rules import MANIFEST, read_manifest
from muniment.protocol.intents.hashes import intent_hash, proposal_hash, settlement_digest, signed_by
from muniment.protocol.ipfs.car import read_car
from muniment.protocol.ipfs.cid import Cid
from muniment.protocol.ipfs.dag import open_file, walk
from muniment.protocol.runs.hashes import evidence, hash_of
from muniment.protocol.runs.payloads import read_payload
from muniment.protocol.triggers.rules import consent, deactivation_form, end_date_ms
from muniment.protocol.triggers.typed_data import registry_domain
from muniment.protocol.triggers.types import Values

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from muniment.protocol.evm.address import Address
    from muniment.protocol.evm.signature import Signature
    from muniment.protocol.functions.rules import Manifest
    from muniment.protocol.intents.types import AnyIntent, AnyProposal
    from muniment.protocol.ipfs.block import GetBlock
    from muniment.protocol.ipfs.cid import CidParts
    from muniment.protocol.runs.types import Run
    from muniment.protocol.triggers.types import DeactivationForm, Trigger

# A few blocks can be a file of exabytes, in which one of them is repeated. Registries take modules of 16 MiB.
FILE_BYTES_MAX: Final = 64 * 1024 * 1024
# Those of a registry have 256 KiB. Each piece costs a walk through the levels above it.
_PIECES_MAX: Final = 4_096


def check_trigger(trigger: Trigger, inputs: Mapping[str, str], protocol: str) -> None:
    """Check the signature of a trigger, and its types against the `inputs` of its function."""
    check_signature(trigger, checked_digest(trigger, inputs, protocol), protocol)


def checked_digest(trigger: Trigger, inputs: Mapping[str, str], protocol: str) -> bytes:
    """The digest that the signer of a trigger signs; its types are checked against the `inputs` of its function."""
    try:
        given = consent(trigger.types, Values.of(trigger), inputs, registry_domain(protocol))
        end_ms = end_date_ms(trigger.config)
    except Refusal as refusal:
        raise Forged(f"trigger {trigger.sig} has typed data that cannot be signed: {refusal}") from refusal
    if trigger.end_date != end_ms:
        raise Forged(f"trigger {trigger.sig} has an endDate other than its config")
    return given.digest


def check_signature(trigger: Trigger, digest: bytes, protocol: str) -> None:
    """Check that the signer of a trigger signed its `checked_digest`."""
    if not is_by(trigger.signer, digest, trigger.sig):
        raise NotUnderName(f"trigger {trigger.sig} is not signed by {trigger.signer} under the name {protocol}")


def check_deactivation(
    sigs: Sequence[Signature], signature: Signature, signer: Address, protocol: str
) -> DeactivationForm:
    """Check that `signer` signed the end of these triggers: as text, or as typed data, which is answered."""
    try:
        return deactivation_form([*sigs], signature, {signer.raw}, {protocol})
    except Refusal as refusal:
        raise NotUnderName(f"deactivation {signature} is not signed by {signer} under the name {protocol}") from refusal


def check_intent(intent: AnyIntent, protocol: str, settlers: Sequence[tuple[int, Address]]) -> None:
    """Check the hashes of an intent and its proposals, and the signatures of proposals with a known domain."""
    computed = intent_hash(intent)
    if intent.hash.raw != computed:
        raise Forged(f"intent {intent.hash} does not match its hash")
    for proposal in intent.proposals:
        check_proposal(proposal, computed, intent.settler, protocol, settlers)


def check_proposal(
    proposal: AnyProposal, intent: bytes, settler: Address, protocol: str, settlers: Sequence[tuple[int, Address]]
) -> None:
    """Check the hash of a proposal to the intent with the hash `intent`, and that its solver signed it.

    The service may accept signatures of other addresses too. To accept its `verified` then, leave the settlement
    contract out of `settlers`.
    """
    computed = check_proposal_hash(proposal, intent)
    domains = [(settlement_digest(computed, protocol, chain, each), ()) for chain, each in settlers if each == settler]
    if signed_by(proposal, domains).verified is False:
        raise NotUnderName(f"proposal {proposal.hash} is not signed by its solver under the name {protocol}")


def check_proposal_hash(proposal: AnyProposal, intent: bytes) -> bytes:
    """Check the hash of a proposal to the intent with the hash `intent`. The hash, 32 bytes."""
    computed = proposal_hash(intent, proposal)
    if proposal.hash.raw != computed:
        raise Forged(f"proposal {proposal.hash} does not match its hash")
    return computed


def check_run(run: Run) -> None:
    """Check the hash of a run: over its trigger, what made it due, its result, and the hashes of its intents.

    Where the time made it due, its timestamp is checked too. Its reason, fuel, logs, records and counts are claims.
    """
    if run.hash.raw != hash_of(run):
        raise Forged(f"run {run.hash} does not match its hash")
    try:
        due = read_payload(run.trigger_type, run.trigger_data.raw)
    except ValueError as error:
        raise Forged(f"run {run.hash} has a payload that no trigger of its type has: {error}") from error
    if isinstance(due, int) and run.timestamp != due:
        raise Forged(f"run {run.hash} has another timestamp than the time that made it due")


def check_evidence(run: Run) -> None:
    """Check that the relayer of a whole run recorded the evidence for what the run shows: context, inputs and blocks.

    That the answers among the inputs are true is a claim: `muniment runs verify` asks nodes.
    """
    if run.inputs is UNSET or run.context is UNSET:
        raise Forged(f"run {run.hash} is shown without its inputs or its context")
    computed = evidence(run.context, run.inputs, run.blocks)
    if not any(each.evidence.raw == computed for each in run.records if each.relayer == run.relayer):
        raise Forged(f"run {run.hash} shows other inputs than its relayer recorded")


def manifest_in(car: bytes, cid: Cid) -> Manifest:
    """The manifest of the function `cid`, from a CAR file that has the blocks on the way to it.

    Raises also for a manifest that no registry takes.
    """
    return read_manifest_bytes(file_in(car, cid, MANIFEST))


def read_manifest_bytes(data: bytes) -> Manifest:
    """The manifest in `data`, whose bytes were proved."""
    try:
        return read_manifest(data)
    except Refusal as refusal:
        raise Forged(f"the function's manifest is invalid: {refusal}") from refusal


def file_in(car: bytes, cid: Cid, name: str) -> bytes:
    """The bytes of the file `name` below `cid`, from a CAR file. Every block is checked against its CID.

    Raises `NotARegistry` for content that does not begin as a CAR file, and `Forged`.
    """
    _, sections = _open_car(car)
    try:
        blocks = {part.digest: block for part, block in sections}
        file = open_file(_getter(blocks), cid.parts, [name])
        if file.size > FILE_BYTES_MAX:
            raise Forged(f"{name} of {cid} has {file.size} bytes, more than any registry accepts")
        pieces = [*islice(file.read(), _PIECES_MAX + 1)]
        if len(pieces) > _PIECES_MAX:
            raise Forged(f"{name} of {cid} has more than {_PIECES_MAX} pieces, more than any registry makes")
        return b"".join(pieces)
    except Refusal as refusal:
        raise _not_of(cid, refusal) from refusal


def check_car(car: bytes, cid: Cid) -> None:
    """Check that a CAR file has the root `cid`, the blocks below it in the order of their links, and nothing else.

    Raises as `file_in`.
    """
    roots, sections = _open_car(car)
    order: list[CidParts] = []

    def get(_: bytes) -> bytes:
        part, block = next(sections, (None, b""))
        if part is None:
            raise Forged("the answer lacks a block")
        order.append(part)
        if len(order) > _PIECES_MAX:
            raise Forged(f"{cid} has more than {_PIECES_MAX} blocks, more than any registry makes")
        return block

    try:
        links = [part for part, _ in walk(get, cid.parts)]
        is_whole = roots == (cid.parts,) and links == order and next(sections, None) is None
    except Refusal as refusal:
        raise _not_of(cid, refusal) from refusal
    if not is_whole:
        raise Forged(f"the answer has other blocks than those of {cid}")


def _open_car(car: bytes) -> tuple[tuple[CidParts, ...], Iterator[tuple[CidParts, bytes]]]:
    """The roots and the blocks of a CAR file. Raises `NotARegistry` for content that does not begin as one."""
    try:
        return read_car(io.BytesIO(car))
    except Refusal as refusal:
        raise NotARegistry(f"answers without a CAR file: {refusal}") from refusal


def _not_of(cid: Cid, refusal: Refusal) -> Forged:
    return Forged(f"the content of {cid} does not match its CID: {refusal}")


def _getter(blocks: Mapping[bytes, bytes]) -> GetBlock:
    def get(digest: bytes) -> bytes:
        block = blocks.get(digest)
        if block is None:
            raise Forged("the answer lacks a block")
        return block

    return get
