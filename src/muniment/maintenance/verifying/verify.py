"""Check everything that is stored: compute every hash and check every signature again."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING

import msgspec

from muniment.app import build_context
from muniment.errors import Integrity, NotTheOwner
from muniment.evm.address import Address
from muniment.evm.hex import HexString
from muniment.evm.signature import Signature
from muniment.functions.rules import MANIFEST, read_manifest
from muniment.functions.types import Function
from muniment.intents.nonces import shared_nonces
from muniment.ipfs.cid import BundleCid, decode_cid
from muniment.ipfs.dag import open_file, walk
from muniment.maintenance.checks import fault_of, rows
from muniment.maintenance.verifying.events import check_events
from muniment.maintenance.verifying.intents import check_intents
from muniment.triggers import rules
from muniment.triggers.store import split_sigs
from muniment.triggers.typed_data import registry_domain
from muniment.triggers.types import NewTrigger, Trigger, TypedData, Values
from muniment.wire import decode_text

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Mapping

    from muniment.blocks.store import BlockStore
    from muniment.context import Context
    from muniment.settings import Settings
    from muniment.storage.database import Row

# Blocks that one call in a thread checks, at most 64 MiB: Ctrl-C waits for no more.
_BLOCKS_PER_CALL = 32


@dataclass(slots=True)
class Summary:
    """The number of rows and blocks that each check read, by the name of the check, and the number of faults."""

    checked: dict[str, int] = field(default_factory=dict[str, int])
    wrong: int = 0


def verify(settings: Settings, *, on_finding: Callable[[str], None], on_checked: Callable[[str, int], None]) -> Summary:
    """Check everything. `on_finding` gets a line for each fault, `on_checked` the name and count of each check.

    `on_finding` also gets a line for each two intents of one nonce, which is no fault of the stored data.
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
            ("deactivations", _deactivations), ("intents and proposals", check_intents), ("events", check_events),
        ):  # fmt: skip
            count = 0
            async for fault in check(context):
                count += 1
                if fault is not None:
                    summary.wrong += 1
                    on_finding(f"WRONG {fault}")
            summary.checked[name] = count
            on_checked(name, count)
        async for line in shared_nonces(context.database):  # no damage: each is as it was sent
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
    async for seq, digest, inputs, record in rows(context, "SELECT seq, digest, inputs, record FROM functions"):
        try:
            function = msgspec.json.decode(record, type=Function, dec_hook=decode_text)
        except msgspec.MsgspecError as error:
            yield f"function {seq}: its record cannot be read: {error}"
            continue
        wrong = await asyncio.to_thread(fault_of, _check_function, context, function, digest, inputs)
        yield f"function {function.cid}: {wrong}" if wrong else None


def _check_function(context: Context, function: Function, digest: bytes, inputs: str) -> None:
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
        return f"its deactivateSig {consent} is not kept, or not for this trigger"
    return None


def _trigger(record: str) -> Trigger:
    return msgspec.json.decode(record, type=Trigger, dec_hook=decode_text)


def _as_posted(trigger: Trigger) -> NewTrigger:
    values = Values(
        function_cid=BundleCid(trigger.function_cid), version=trigger.version,
        input=trigger.input, config=trigger.config,
        execution_fee_limit=trigger.execution_fee_limit, min_validations=trigger.min_validations,
    )  # fmt: skip
    typed_data = TypedData(types=trigger.types, values=values)
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
