"""The endpoints through which operators write intents."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from muniment.protocol import errors
from muniment.protocol.errors import IntentNotFound
from muniment.protocol.evm.address import Address
from muniment.protocol.evm.hex import Bytes32
from muniment.protocol.intents import rules
from muniment.protocol.intents.lifecycle import Moment
from muniment.protocol.intents.types import (
    AnyIntent,
    AnyNewIntent,
    AnyNewProposal,
    AnyProposal,
    Log,
    NewLog,
    StatusChange,
)
from muniment.service.auth.operators import OperatorCaller
from muniment.service.context import Context
from muniment.service.http.operation import operation
from muniment.service.http.reply import Ready
from muniment.service.resources.intents import recording, store
from muniment.service.running.limits.costs import Shed

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from muniment.service.storage.database import Transaction


@operation(
    "PUT", "/intents/{hash}", cost=8, sheds=Shed.NEVER,
    refuses=(
        errors.HashMismatch, errors.InvalidIntent, errors.StatusConflict, errors.IntentDiffers, errors.IntentFull,
        errors.NonceTaken, errors.ClockInDoubt, errors.DiskAlmostFull,
    ),
)  # fmt: skip
async def put_intent(context: Context, caller: OperatorCaller, hash: Bytes32, body: AnyNewIntent) -> Ready[AnyIntent]:
    """Record an intent of either generation.

    The hash is computed again from the fields. Recorded values stay: the status only moves forward, by one
    or more moves; new proposals and logs are added, each once. The answer to GET can be sent back unchanged.

    Of intents of generation 2 with the same `triggerSig`, `settler` and `nonce` only one is recorded, because the
    settlement contract would execute both. The second is refused until an hour (a setting) after the deadline of the
    first, whatever its status; for ever if the first succeeded.
    """
    moment = Moment(context.now_ms(), context.settings.settlement_grace_s)
    checked = rules.check_intent(
        body, hash, protocol=context.settings.protocol_name, chains=context.chains, now_ms=moment.now_ms
    )
    # Nothing new is dated while the clock is in doubt; an intent that is recorded has its date.
    if context.clock.doubt() and await store.find(context.database, hash.raw, moment) is None:
        context.clock.require()

    async def write(tx: Transaction) -> str:
        async with _reserve_kept(context, tx, checked.hash, moment):
            await recording.record(tx, checked, caller.name, moment)
        return await _shown(tx, checked.hash, moment)

    shown = await context.database.write(write, order=hash.raw)
    if body.status is not None:
        context.metrics.counter("intent_moves_total", outcome=body.status).add()
    return Ready(shown.encode())


@operation(
    "POST", "/intents/{hash}/proposals", cost=8, sheds=Shed.NEVER,
    refuses=(
        IntentNotFound, errors.InvalidIntent, errors.StatusConflict, errors.IntentDiffers, errors.IntentFull,
        errors.DiskAlmostFull,
    ),
)  # fmt: skip
async def append_proposal(
    context: Context,
    caller: OperatorCaller,
    hash: Bytes32,
    body: AnyNewProposal,
) -> Ready[AnyProposal]:
    """Append a proposal to an intent.

    It has the form of the intent: `data`, or `datas` with one item for each operation.

    Its identity is its hash, computed as the settlement contract does: a repeated proposal moves its status
    and transactions forward, and is answered with the recorded proposal.
    """
    moment = Moment(context.now_ms(), context.settings.settlement_grace_s)
    settler, operations = await _target_of(context, hash.raw)
    checked = rules.check_proposal(
        hash.raw, settler, body,
        operations=operations, protocol=context.settings.protocol_name, chains=context.chains,
    )  # fmt: skip

    async def write(tx: Transaction) -> str:
        async with _reserve_kept(context, tx, hash.raw, moment):
            return await recording.append_proposal(tx, hash.raw, checked, caller.name, moment)

    return Ready((await context.database.write(write, order=hash.raw)).encode())


@operation(
    "POST",
    "/intents/{hash}/logs",
    cost=8,
    sheds=Shed.NEVER,
    refuses=(IntentNotFound, errors.InvalidIntent, errors.IntentFull, errors.DiskAlmostFull),
)
async def append_log(context: Context, caller: OperatorCaller, hash: Bytes32, body: NewLog) -> Ready[Log]:
    """Append a log line to an intent.

    Its identity is its `id`, or else its time, level and text: a repeated line is answered with the recorded line.
    Without `createdAt` its time is now.
    """
    moment = Moment(context.now_ms(), context.settings.settlement_grace_s)
    checked = rules.check_log(body, moment.now_ms)

    async def write(tx: Transaction) -> str:
        async with _reserve_kept(context, tx, hash.raw, moment):
            return await recording.append_log(tx, hash.raw, checked, caller.name, moment.now_ms)

    return Ready((await context.database.write(write, order=hash.raw)).encode())


@operation(
    "POST", "/intents/{hash}/status", cost=8, sheds=Shed.NEVER,
    refuses=(
        IntentNotFound, errors.ProposalNotFound, errors.InvalidIntent, errors.StatusConflict, errors.IntentDiffers,
    ),
)  # fmt: skip
async def move_intent(context: Context, caller: OperatorCaller, hash: Bytes32, body: StatusChange) -> Ready[AnyIntent]:
    """Move an intent, or a proposal of it.

    An intent moves by one step: created to enqueued or discarded, enqueued to submitted or discarded, submitted to
    succeeded or failed. A named proposal moves to any status that can follow its own. Repeating the
    current status is allowed.
    """
    moment = Moment(context.now_ms(), context.settings.settlement_grace_s)

    async def write(tx: Transaction) -> str:
        await recording.move(tx, hash.raw, body, caller.name, moment)
        return await _shown(tx, hash.raw, moment)

    shown = await context.database.write(write, order=hash.raw)
    if body.proposal is None:
        context.metrics.counter("intent_moves_total", outcome=body.status).add()
    return Ready(shown.encode())


@asynccontextmanager
async def _reserve_kept(context: Context, tx: Transaction, intent_hash: bytes, moment: Moment) -> AsyncGenerator[None]:
    """Write about an intent inside. Raises `DiskAlmostFull`, which undoes it, if rows were added that have no room.

    Repetitions and moves of recorded intents add no rows.
    """
    if not context.disk.is_used:
        yield
        return
    before = await _rows_of(tx, intent_hash, moment)
    yield
    if await _rows_of(tx, intent_hash, moment) != before:
        context.disk.require()


async def _rows_of(tx: Transaction, intent_hash: bytes, moment: Moment) -> tuple[int, int] | None:
    """How many proposals and logs an intent has; None for one that is not recorded."""
    head = await store.find(tx, intent_hash, moment)
    return None if head is None else (head.proposal_count, head.log_count)


async def _shown(tx: Transaction, intent_hash: bytes, moment: Moment) -> str:
    """The intent as a listing shows it, read in the transaction that wrote it."""
    shown = await store.shown(tx, intent_hash, moment)
    if shown is None:
        raise RuntimeError("an intent that was just written is missing")
    return shown


async def _target_of(context: Context, intent_hash: bytes) -> tuple[Address, int | None]:
    """The settlement contract of an intent and the number of its operations, which its proposals must match.

    Proposals are signed under the contract's domain. The number is None for an intent of the first form. Both are part
    of the intent's hash, so they never change. Raises `IntentNotFound`.
    """
    row = await context.database.fetch_one(
        "SELECT settler, operation_count FROM intents WHERE hash = ?", (intent_hash,)
    )
    if row is None:
        raise IntentNotFound("no intent is recorded under this hash")
    return Address.from_raw(row[0]), row[1]


OPERATIONS = (append_log, append_proposal, move_intent, put_intent)
