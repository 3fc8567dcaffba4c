"""`muniment verify`: trust nothing that is stored; hash every block, check every signature again."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import click
import msgspec

from muniment.app import build_context
from muniment.errors import Refusal
from muniment.evm.address import Address
from muniment.evm.hex import HexString
from muniment.evm.signature import Signature
from muniment.functions.types import Function
from muniment.ipfs.cid import BundleCid, decode_cid
from muniment.ipfs.dag import walk
from muniment.triggers import rules
from muniment.triggers.typed_data import registry_domain
from muniment.triggers.types import NewTrigger, Trigger, TypedData, Values
from muniment.wire import decode_text

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from muniment.context import Context
    from muniment.settings import Settings
    from muniment.storage.database import Row

# Rows read at once: a few megabytes of records.
_ROWS_AT_ONCE = 500
_SIGNATURE_BYTES = 65


def run(settings: Settings) -> int:
    """Check everything; 0 when all is well, 1 when something is not, each thing on a line of its own."""
    return asyncio.run(_run(build_context(settings)))


async def _run(context: Context) -> int:
    wrong = 0
    try:
        await context.database.check()
        for name, check in (
            ("blocks", _blocks), ("functions", _functions), ("triggers", _triggers), ("deactivations", _deactivations)
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
    for digest in context.blocks.digests():
        try:
            context.blocks.get(digest)
        except Refusal as refusal:
            yield f"block {digest.hex()}: {refusal.detail}"
        else:
            yield None


async def _functions(context: Context) -> AsyncIterator[str | None]:
    async for _, record in _rows(context, "SELECT seq, record FROM functions"):
        cid = msgspec.json.decode(record, type=Function, dec_hook=decode_text).cid
        try:
            for _ in walk(context.blocks.get, decode_cid(cid)):
                pass
        except Refusal as refusal:
            yield f"function {cid}: {refusal.detail}"
        else:
            yield None


async def _triggers(context: Context) -> AsyncIterator[str | None]:
    sql = "SELECT seq, record, protocol, function_digest, deactivated FROM triggers"
    async for _, record, protocol, function_digest, is_deactivated in _rows(context, sql):
        trigger = msgspec.json.decode(record, type=Trigger, dec_hook=decode_text)
        inputs = await context.find_inputs(function_digest)
        try:
            rules.signed_consent(_as_posted(trigger), inputs or {}, registry_domain(protocol))
        except Refusal as refusal:
            yield f"trigger {trigger.sig}: {refusal.detail}"
        else:
            marked = trigger.deactivate_sig is not msgspec.UNSET
            yield None if marked == bool(is_deactivated) else f"trigger {trigger.sig}: its record and state differ"


def _as_posted(trigger: Trigger) -> NewTrigger:
    values = Values(
        function_cid=BundleCid(trigger.function_cid), version=trigger.version,
        input=trigger.input, config=trigger.config,
        execution_fee_limit=trigger.execution_fee_limit, min_validations=trigger.min_validations,
    )  # fmt: skip
    typed_data = TypedData(types=trigger.types, values=values)
    return NewTrigger(description=trigger.description, typed_data=typed_data, sig=trigger.sig, signer=trigger.signer)


async def _deactivations(context: Context) -> AsyncIterator[str | None]:
    rows = await context.database.fetch_slow("SELECT signature, signer, protocol, trigger_sigs FROM deactivations")
    for signature, signer, protocol, listed in rows:
        consent = Signature.parse(HexString.from_raw(signature))
        sigs = list(_split(listed))
        signers = rules.deactivation_signers(sigs, consent, registry_domain(protocol))
        owned = Address.from_raw(signer) in signers
        yield None if owned else f"deactivation {consent}: not signed by {Address.from_raw(signer)}"


def _split(listed: bytes) -> Iterator[Signature]:
    for at in range(0, len(listed), _SIGNATURE_BYTES):
        yield Signature.parse(HexString.from_raw(listed[at : at + _SIGNATURE_BYTES]))


async def _rows(context: Context, select: str) -> AsyncIterator[Row]:
    """All rows of a table in the order of its sequence, a few at a time."""
    last: Any = 0
    while rows := await context.database.fetch_slow(
        f"{select} WHERE seq > ? ORDER BY seq LIMIT {_ROWS_AT_ONCE}", (last,)
    ):
        for row in rows:
            yield row
        last = rows[-1][0]
