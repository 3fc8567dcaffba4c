"""`muniment verify`: compute every hash and check every signature of the stored data again."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, LiteralString

import msgspec

from muniment.operate.verify_runs import check_runs, contradictions
from muniment.protocol.errors import CursorTooOld, Integrity, NotTheOwner, Refusal, Unavailable
from muniment.protocol.evm.address import Address
from muniment.protocol.evm.hex import HexString
from muniment.protocol.evm.signature import Signature
from muniment.protocol.functions.rules import MANIFEST, has_lasting_key, name_key, read_manifest
from muniment.protocol.functions.types import Function
from muniment.protocol.intents.hashes import intent_hash, proposal_hash
from muniment.protocol.intents.types import (
    FIRST,
    SECOND,
    Offer,
    OperationsOffer,
    RecordedIntent,
    RecordedOperationsIntent,
)
from muniment.protocol.ipfs.cid import BundleCid, decode_cid
from muniment.protocol.ipfs.dag import open_file, walk
from muniment.protocol.triggers import rules
from muniment.protocol.triggers.typed_data import registry_domain
from muniment.protocol.triggers.types import NewTrigger, Trigger, TypedData, Values
from muniment.protocol.wire import decode_text
from muniment.service.app import build_context
from muniment.service.resources.feed.events import ABOUT_INTENTS, EVENT_TYPES, EVERYTHING, Event, Kind
from muniment.service.resources.feed.reading import floor, read_slice
from muniment.service.resources.intents.nonces import shared_nonces
from muniment.service.resources.triggers.store import split_sigs
from muniment.service.storage.sql import number_text, placeholders

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence

    from muniment.protocol.intents.types import AnyRecorded
    from muniment.service.blocks.store import BlockStore
    from muniment.service.context import Context
    from muniment.service.running.settings import Settings
    from muniment.service.storage.database import Row

# Rows of one read: a few megabytes of records.
_ROWS_PER_READ: Final = 500
# Blocks of one call in a thread, at most 64 MiB: Ctrl-C waits for one call.
_BLOCKS_PER_CALL = 32
# Events of one read, and their records.
_EVENTS_PER_READ: Final = 500
_FUNCTIONS: Final = "SELECT seq, digest, inputs, name_key, record FROM functions"
_SUBJECTS: Final[dict[Kind, LiteralString]] = {
    Kind.TRIGGER_CREATED: "SELECT sig, deactivated FROM triggers WHERE sig",
    Kind.FUNCTION_CREATED: "SELECT digest, 0 FROM functions WHERE digest",
    Kind.INTENT_CREATED: "SELECT hash, version FROM intents WHERE hash",
}


@dataclass(slots=True)
class Summary:
    """The number of rows and blocks that each check read, by the name of the check, and the number of faults."""

    checked: dict[str, int] = field(default_factory=dict[str, int])
    wrong: int = 0


def verify(settings: Settings, *, on_finding: Callable[[str], None], on_checked: Callable[[str, int], None]) -> Summary:
    """Check everything. `on_finding` gets a line for each fault, `on_checked` the name and count of each check.

    `on_finding` also gets a line for each two intents of one nonce, for each two verdicts on one cause, and for each
    intent that names a run without it: these are not counted as faults.
    Raises `Refusal` when the database or the block store does not answer.
    """
    return asyncio.run(_verify(settings, on_finding, on_checked))


async def _verify(
    settings: Settings, on_finding: Callable[[str], None], on_checked: Callable[[str, int], None]
) -> Summary:
    context, summary = build_context(settings), Summary()
    try:
        await context.database.check()
        for name, check in (
            ("blocks", _blocks), ("functions", _functions), ("triggers", _triggers),
            ("deactivations", _deactivations), ("intents and proposals", check_intents), ("runs", check_runs),
            ("events", check_events),
        ):  # fmt: skip
            count = 0
            async for fault in check(context):
                count += 1
                if fault is not None:
                    summary.wrong += 1
                    on_finding(f"WRONG {fault}")
            summary.checked[name] = count
            on_checked(name, count)
        # Not damage: they are as they were sent.
        for lines in (shared_nonces(context.database), contradictions(context.database)):
            async for line in lines:
                on_finding(line)
    finally:
        await context.database.close()
    return summary


async def _blocks(context: Context) -> AsyncIterator[str | None]:
    digests = context.blocks.digests()
    while found := await asyncio.to_thread(_check_blocks, context.blocks, digests):
        for each in found:
            yield each


def _check_blocks(blocks: BlockStore, digests: Iterator[bytes]) -> list[str | None]:
    """A fault, or None, for each of the next blocks."""
    return [_check_block(blocks, digest) for digest in islice(digests, _BLOCKS_PER_CALL)]


def _check_block(blocks: BlockStore, digest: bytes) -> str | None:
    try:
        blocks.get(digest)
    except Integrity as refusal:
        return f"block {digest.hex()}: {refusal.detail}"
    return None


async def _functions(context: Context) -> AsyncIterator[str | None]:
    async for seq, digest, inputs, key, record in rows(context, _FUNCTIONS):
        try:
            function = msgspec.json.decode(record, type=Function, dec_hook=decode_text)
        except msgspec.MsgspecError as error:
            yield f"function {seq}: its record cannot be read: {error}"
            continue
        wrong = await asyncio.to_thread(fault_of, _check_function, context, function, digest, inputs, key)
        yield f"function {function.cid}: {wrong}" if wrong else None


def _check_function(context: Context, function: Function, digest: bytes, inputs: str, key: bytes) -> None:
    root = decode_cid(function.cid)
    if root.digest != digest:
        raise Integrity("its record is under the digest of another bundle")
    for _ in walk(context.blocks.get, root):
        pass
    file = open_file(context.blocks.get, root, [MANIFEST])
    manifest = read_manifest(b"".join(file.read(0, file.size)))
    if (function.name, function.version, function.description) != (
        manifest.name,
        manifest.version,
        manifest.description,
    ):
        raise Integrity("its record differs from its manifest")
    if list(msgspec.json.decode(inputs, type=dict[str, str]).items()) != list(manifest.inputs.items()):
        raise Integrity("its inputs differ from its manifest")
    if has_lasting_key(manifest.name) and key != name_key(manifest.name):
        raise Integrity("its name_key is not the key of its name")


async def _triggers(context: Context) -> AsyncIterator[str | None]:
    sql = "SELECT seq, sig, signer, digest, function_digest, protocol, deactivated, end_date_ms, record FROM triggers"
    async for row in rows(context, sql):
        inputs = await context.find_inputs(row[4])
        wrong = fault_of(check_trigger, row, inputs or {}) or await _deactivation_fault(context, row)
        yield f"trigger {HexString.from_raw(row[1])}: {wrong}" if wrong else None


def check_trigger(row: Row, inputs: Mapping[str, str]) -> None:
    """Return if the columns of a trigger's row match its record, and its owner signed it. Raises `Refusal`."""
    _, sig, signer, digest, function_digest, protocol, _, end_date_ms, record = row
    trigger = _trigger(record)
    new = _as_posted(trigger)
    consent = rules.signed_consent(new, inputs, registry_domain(protocol))
    columns = (sig, signer, digest, function_digest, end_date_ms)
    cid = BundleCid(trigger.function_cid)
    if columns != (trigger.sig.raw, trigger.signer.raw, consent.digest, cid.digest, trigger.end_date):
        raise Integrity("its record and its columns differ")
    if trigger.end_date != rules.end_date_ms(trigger.config):
        raise Integrity("its endDate differs from its config")


async def _deactivation_fault(context: Context, row: Row) -> str | None:
    """The fault in the deactivation of a trigger with a readable record, or None."""
    sig, is_deactivated, consent = row[1], bool(row[6]), _trigger(row[8]).deactivate_sig
    if consent is msgspec.UNSET:
        return "it is deactivated without a deactivateSig" if is_deactivated else None
    if not is_deactivated:
        return "it has a deactivateSig and is not deactivated"
    kept = await context.database.fetch_slow(
        "SELECT trigger_sigs FROM deactivations WHERE signature = ?", (consent.raw,)
    )
    if not kept or sig not in split_sigs(kept[0][0]):
        return f"its deactivateSig {consent} is not stored, or not for this trigger"
    return None


def _trigger(record: str) -> Trigger:
    return msgspec.json.decode(record, type=Trigger, dec_hook=decode_text)


def _as_posted(trigger: Trigger) -> NewTrigger:
    typed_data = TypedData(types=trigger.types, values=Values.of(trigger))
    return NewTrigger(description=trigger.description, typed_data=typed_data, sig=trigger.sig, signer=trigger.signer)


async def _deactivations(context: Context) -> AsyncIterator[str | None]:
    for row in await context.database.fetch_slow(
        "SELECT signature, signer, protocol, trigger_sigs, form FROM deactivations"
    ):
        wrong = fault_of(_check_deactivation, *row)
        yield f"deactivation {HexString.from_raw(row[0])}: {wrong}" if wrong else None


def _check_deactivation(signature: bytes, signer: bytes, protocol: str, listed: bytes, form: str | None) -> None:
    sigs = [Signature.parse(HexString.from_raw(sig)) for sig in split_sigs(listed)]
    consent = Signature.parse(HexString.from_raw(signature))
    try:
        found = rules.deactivation_form(sigs, consent, {signer}, {protocol})
    except NotTheOwner as refusal:
        raise Integrity(f"not signed by {Address.from_raw(signer)}") from refusal
    if form not in {None, found}:
        raise Integrity(f"it is signed as {found}, not {form}")


# The forms of the records of each generation.
_FORMS: Final[dict[int, tuple[type[AnyRecorded], type[Offer | OperationsOffer]]]] = {
    FIRST: (RecordedIntent, Offer), SECOND: (RecordedOperationsIntent, OperationsOffer),
}  # fmt: skip


async def check_intents(context: Context) -> AsyncIterator[str | None]:
    """A fault, or None, for each intent and each proposal."""
    select = (
        "SELECT seq, generation, hash, record, settler, trigger_sig, deadline, user_address, op, operation_count, "
        "nonce FROM intents"
    )
    async for seq, generation, digest, record, *columns in rows(context, select):
        form, proposal_form = _FORMS[generation]
        wrong = fault_of(_check_intent, form, digest, record, columns)
        if wrong is None and generation == SECOND:
            wrong = await _filter_fault(context, seq, record)
        yield f"intent {HexString.from_raw(digest)}: {wrong}" if wrong else None
        # At most 1,000 of at most 64 KiB; usually a handful.
        for proposal_digest, proposed in await context.database.fetch_slow(
            "SELECT hash, record FROM intent_proposals WHERE intent_seq = ? ORDER BY n", (seq,)
        ):
            wrong = fault_of(_check_proposal, proposal_form, digest, proposal_digest, proposed)
            yield f"proposal {HexString.from_raw(proposal_digest)}: {wrong}" if wrong else None


def _check_intent(form: type[AnyRecorded], digest: bytes, record: str, columns: Row) -> None:
    intent = msgspec.json.decode(record, type=form, dec_hook=decode_text)
    if not digest == intent.hash.raw == intent_hash(intent):
        raise Integrity("its hash does not match its fields")
    if list(columns) != _columns_of(intent):
        raise Integrity("its columns differ from its record")


def _columns_of(intent: AnyRecorded) -> list[object]:
    deadline = int(intent.deadline).to_bytes(32)
    if isinstance(intent, RecordedOperationsIntent):
        return [intent.settler.raw, intent.trigger_sig.raw, deadline, None, None, len(intent.operations), intent.nonce]
    return [intent.settler.raw, intent.config_sig.raw, deadline, intent.user.raw, intent.op, None, None]


async def _filter_fault(context: Context, seq: int, record: str) -> str | None:
    """The fault of a second-generation intent that listings by user or type of operation miss."""
    intent = msgspec.json.decode(record, type=RecordedOperationsIntent, dec_hook=decode_text)
    users = {intent.fee_payer.raw, *(each.user.raw for each in intent.operations)}
    ops = {each.op_type for each in intent.operations}
    named: dict[tuple[LiteralString, LiteralString], Collection[object]] = {
        ("intent_users", "address"): users, ("intent_ops", "op_type"): ops,
    }  # fmt: skip
    for (table, column), values in named.items():
        ((count,),) = await context.database.fetch_slow(
            f"SELECT count(*) FROM {table} WHERE {column} IN ({placeholders(len(values))}) AND seq = ?", (*values, seq)
        )
        if count != len(values):
            return f"rows of {table} are missing"
    return None


def _check_proposal(form: type[Offer | OperationsOffer], intent_digest: bytes, digest: bytes, record: str) -> None:
    proposal = msgspec.json.decode(record, type=form, dec_hook=decode_text)
    if not digest == proposal.hash.raw == proposal_hash(intent_digest, proposal):
        raise Integrity("its hash does not match its fields")


async def check_events(context: Context) -> AsyncIterator[str | None]:
    """A fault, or None, for each event."""
    last_seq = await floor(context.database)
    while True:
        try:
            found = await read_slice(context.database, last_seq, EVERYTHING, _EVENTS_PER_READ)
        except CursorTooOld:  # a running service has removed old events since the last read
            last_seq = await floor(context.database)
            continue
        stored = await _stored(context, found.events)
        for event in found.events:
            wrong = _event_fault(event, stored.get(event.subject))
            yield f"event {event.seq}: {wrong}" if wrong else None
        last_seq = found.last_seq
        if found.is_caught_up:
            return


async def _stored(context: Context, events: Sequence[Event]) -> dict[bytes, int]:
    """By subject of each event: whether it is deactivated, or its version."""
    stored: dict[bytes, int] = {}
    subjects = sorted({event.subject for event in events})
    for select in _SUBJECTS.values():
        if subjects:
            found: list[Row] = await context.database.fetch_slow(
                f"{select} IN ({placeholders(len(subjects))})", subjects
            )
            stored.update(found)
    return stored


def _event_fault(event: Event, stored: int | None) -> str | None:
    if event.kind not in EVENT_TYPES:
        return f"its kind {event.kind} is unknown"
    if event.kind == Kind.RUN_RECORDED:  # old runs are removed, and notes for a verdict
        return None
    if stored is None:
        return f"its subject {event.subject.hex()} is not stored"
    if event.kind == Kind.TRIGGER_DEACTIVATED and not stored:
        return "it is a deactivation of an active trigger"
    if event.kind in ABOUT_INTENTS:
        try:
            facts: dict[str, Any] = msgspec.json.decode(event.facts)
            version = int(facts["version"])
        except (msgspec.MsgspecError, KeyError, ValueError) as error:
            return f"its facts cannot be read: {error}"
        if version > stored:
            return f"its version {version} is newer than the stored version {stored}"
    return None


def fault_of(check: Callable[..., None], *of: object) -> str | None:
    """The fault that `check` finds in stored data, or None. Raises `Unavailable` when the storage fails."""
    try:
        check(*of)
    except Unavailable:
        raise
    except Refusal as refusal:
        return refusal.detail
    except msgspec.MsgspecError as error:
        return f"its record cannot be read: {error}"
    return None


async def rows(context: Context, select: LiteralString) -> AsyncIterator[Row]:
    """All rows of a table, in the order of `seq`, which is the first column of `select`."""
    last: Any = 0
    while found := await context.database.fetch_slow(
        f"{select} WHERE seq > ? ORDER BY seq LIMIT {number_text(_ROWS_PER_READ)}", (last,)
    ):
        for row in found:
            yield row
        last = found[-1][0]
