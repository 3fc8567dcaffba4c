"""`muniment verify`: trust nothing that is stored; compute every hash, check every signature again."""

from __future__ import annotations

import asyncio
from itertools import islice
from typing import TYPE_CHECKING

import click
import msgspec

from muniment.app import build_context
from muniment.cli.verified import fault_of, rows
from muniment.cli.verify_intents import check_intents
from muniment.errors import Integrity, NotTheOwner, Refusal
from muniment.evm.address import Address
from muniment.evm.hex import HexString
from muniment.evm.signature import Signature
from muniment.functions.manifest import read_manifest
from muniment.functions.rules import MANIFEST
from muniment.functions.types import Function
from muniment.ipfs.cid import BundleCid, decode_cid
from muniment.ipfs.dag import open_file, walk
from muniment.triggers import rules
from muniment.triggers.typed_data import registry_domain
from muniment.triggers.types import NewTrigger, Trigger, TypedData, Values
from muniment.wire import decode_text

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping

    from muniment.blocks.store import BlockStore
    from muniment.context import Context
    from muniment.settings import Settings
    from muniment.storage.database import Row

# Blocks checked before the event loop has its turn: at most 64 MiB are hashed.
_BLOCKS_AT_ONCE = 32
_SIGNATURE_BYTES = 65


def run(settings: Settings) -> int:
    """Check everything; 0 when all is well, 1 when something is not, each thing on a line of its own."""
    return asyncio.run(_run(settings))


async def _run(settings: Settings) -> int:
    context = build_context(settings)
    wrong = 0
    try:
        await context.database.check()
        for name, check in (
            ("blocks", _blocks), ("functions", _functions), ("triggers", _triggers),
            ("deactivations", _deactivations), ("intents and proposals", check_intents),
        ):  # fmt: skip
            count = 0
            async for found in check(context):
                count += 1
                if found is not None:
                    wrong += 1
                    click.echo(f"WRONG {found}")
            click.echo(f"{name}: {count} checked")
    except Refusal as refusal:
        raise click.ClickException(refusal.detail) from refusal
    finally:
        await context.database.close()
    click.echo(f"{wrong} wrong" if wrong else "everything is as it was signed and hashed")
    return 1 if wrong else 0


async def _blocks(context: Context) -> AsyncIterator[str | None]:
    digests = context.blocks.digests()
    while found := await asyncio.to_thread(_check_blocks, context.blocks, digests):
        for each in found:
            yield each


def _check_blocks(blocks: BlockStore, digests: Iterator[bytes]) -> list[str | None]:
    """What is wrong with each of the next blocks, in a thread: few enough that Ctrl-C is heeded soon."""
    return [_check_block(blocks, digest) for digest in islice(digests, _BLOCKS_AT_ONCE)]


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
        raise Integrity("its record says something else than its manifest")
    if list(msgspec.json.decode(inputs, type=dict[str, str]).items()) != list(manifest.inputs.items()):
        raise Integrity("its inputs are not those of its manifest")


async def _triggers(context: Context) -> AsyncIterator[str | None]:
    sql = "SELECT seq, sig, signer, digest, function_digest, protocol, deactivated, end_date_ms, record FROM triggers"
    async for row in rows(context, sql):
        inputs = await context.find_inputs(row[4])
        wrong = fault_of(_check_trigger, row, inputs or {}) or await _unconsented(context, row)
        yield f"trigger {HexString.from_raw(row[1])}: {wrong}" if wrong else None


def _check_trigger(row: Row, inputs: Mapping[str, str]) -> None:
    _, sig, signer, digest, function_digest, protocol, _, end_date_ms, record = row
    trigger = _trigger(record)
    new = _as_posted(trigger)
    consent = rules.signed_consent(new, inputs, registry_domain(protocol))
    columns = (sig, signer, digest, function_digest, end_date_ms)
    cid = BundleCid(trigger.function_cid)
    if columns != (trigger.sig.raw, trigger.signer.raw, consent.digest, cid.digest, trigger.end_date):
        raise Integrity("its record and its columns differ")
    if trigger.end_date != rules.end_date_ms(trigger.config):
        raise Integrity("its endDate is not that of its config")


async def _unconsented(context: Context, row: Row) -> str | None:
    """What is wrong with the deactivation of a trigger whose record can be read, if it has one."""
    sig, is_deactivated, consent = row[1], bool(row[6]), _trigger(row[8]).deactivate_sig
    if consent is msgspec.UNSET:
        return "it is deactivated without a deactivateSig" if is_deactivated else None
    if not is_deactivated:
        return "it has a deactivateSig and is not deactivated"
    kept = await context.database.fetch_slow(
        "SELECT trigger_sigs FROM deactivations WHERE signature = ?", (consent.raw,)
    )
    if not kept or sig not in _split(kept[0][0]):
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
    sigs = [Signature.parse(HexString.from_raw(sig)) for sig in _split(listed)]
    consent = Signature.parse(HexString.from_raw(signature))
    try:
        found = rules.deactivation_form(sigs, consent, {signer}, {protocol})
    except NotTheOwner as refusal:
        raise Integrity(f"not signed by {Address.from_raw(signer)}") from refusal
    if form not in {None, found}:
        raise Integrity(f"it is signed as {found}, not {form}")


def _split(listed: bytes) -> list[bytes]:
    return [listed[at : at + _SIGNATURE_BYTES] for at in range(0, len(listed), _SIGNATURE_BYTES)]
