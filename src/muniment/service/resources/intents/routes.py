"""The endpoints of intents: those that read intents, and those through which operators write them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from muniment.protocol import errors
from muniment.protocol.errors import IntentNotFound, InvalidTimestamp
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
from muniment.service.context import Context
from muniment.service.http.openapi import LISTED, TAGGED
from muniment.service.http.operation import Operation, operation
from muniment.service.http.paging import answer_page
from muniment.service.http.reply import JSON, Ready, Streamed, etag_matches
from muniment.service.http.request import Request
from muniment.service.resources.intents import listing, recording, store
from muniment.service.resources.intents.history import list_moves
from muniment.service.resources.intents.queries import IntentQuery
from muniment.service.resources.operators import OperatorCaller
from muniment.service.running.limits.costs import PAGE, Cost, Shed

if TYPE_CHECKING:
    from muniment.service.storage.database import Transaction

# Each has lists of its own.
_PAGE: Final = replace(PAGE, units=4)
# Its proposals and logs are put together, some hundred bytes a row.
_WHOLE: Final = Cost(4, sent_bytes_per_unit=8 * 1024)


@operation("GET", "/intents", cost=_PAGE, sheds=Shed.PAGE, refuses=(InvalidTimestamp,), answers=LISTED)
async def list_intents(context: Context, request: Request, query: IntentQuery) -> Ready[list[AnyIntent]] | Streamed:
    """List intents, each with the newest 50 of its proposals and logs.

    Only generation 1, unless `generation` is given; each intent has the form of its generation. In generation 2,
    `user` finds the users of all operations and the payer of fees, `op` the type of any operation, and `configSig` the
    `triggerSig`.

    Newest first unless `sort=1`. A page ends before its limit when it would be longer than 8 MiB (1 MiB with a
    `cursor`); a `next` link then leads on. A client that follows these links with `sort=1` gets each intent exactly
    once.
    """
    moment = Moment(context.clock.now_ms(), context.settings.settlement_grace_s)
    reader = context.list_reader()
    numbers = context.epochs.numbers(reader, "intents")
    client = context.clients.address(request)
    return await answer_page(request, query, numbers, lambda: listing.search(reader, query, moment, client))


@operation(
    "GET", "/intents/{hash}", cost=_WHOLE, sheds=Shed.READ, refuses=(IntentNotFound,),
    answers=TAGGED, headers_read={"if-none-match": "ETags that the client has"},
)  # fmt: skip
async def get_intent(context: Context, request: Request, hash: Bytes32) -> Ready[AnyIntent] | Streamed:
    """Read an intent with all its proposals and logs.

    The ETag changes with each of them, with the status, and when the intent expires.
    """
    moment = Moment(context.clock.now_ms(), context.settings.settlement_grace_s)
    head = await store.find(context.database, hash.raw, moment)
    headers = (JSON, (b"etag", head.etag.encode()))
    if etag_matches(request.header(b"if-none-match"), head.etag):
        return Ready(b"", headers, 304)
    pieces = store.pieces(context.database, head)
    if head.is_small:
        return Ready(b"".join([piece async for piece in pieces]), headers)
    return Streamed(pieces, headers)


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
    first, or for ever if the first succeeded.
    """
    moment = Moment(context.clock.now_ms(), context.settings.settlement_grace_s)
    checked = rules.check_intent(
        body, hash, protocol=context.settings.protocol_name, chains=context.chains, now_ms=moment.now_ms
    )
    # Nothing new is dated while the clock is in doubt; an intent that is recorded has its date.
    if context.clock.doubt():
        try:
            await store.find(context.database, hash.raw, moment)
        except IntentNotFound:
            context.clock.require()

    async def write(tx: Transaction) -> str:
        await recording.record(tx, checked, caller.name, moment, context.disk.require)
        return await store.shown(tx, checked.hash, moment)

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
    context: Context, caller: OperatorCaller, hash: Bytes32, body: AnyNewProposal
) -> Ready[AnyProposal]:
    """Append a proposal to an intent.

    It has the form of the intent: `data`, or `datas` with one item for each operation.

    Its identity is its hash, computed as the settlement contract does: a repeated proposal moves its status
    and transactions forward, and is answered with the recorded proposal.
    """
    moment = Moment(context.clock.now_ms(), context.settings.settlement_grace_s)
    settler, operations = await _target_of(context, hash.raw)
    checked = rules.check_proposal(
        hash.raw, settler, body,
        operations=operations, protocol=context.settings.protocol_name, chains=context.chains,
    )  # fmt: skip

    async def write(tx: Transaction) -> str:
        return await recording.append_proposal(tx, hash.raw, checked, caller.name, moment, context.disk.require)

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
    moment = Moment(context.clock.now_ms(), context.settings.settlement_grace_s)
    checked = rules.check_log(body, moment.now_ms)

    async def write(tx: Transaction) -> str:
        return await recording.append_log(tx, hash.raw, checked, caller.name, moment.now_ms, context.disk.require)

    return Ready((await context.database.write(write, order=hash.raw)).encode())


@operation(
    "POST", "/intents/{hash}/status", cost=8, sheds=Shed.NEVER,
    refuses=(
        IntentNotFound, errors.ProposalNotFound, errors.InvalidIntent, errors.StatusConflict, errors.IntentDiffers,
        errors.DiskAlmostFull,
    ),
)  # fmt: skip
async def move_intent(context: Context, caller: OperatorCaller, hash: Bytes32, body: StatusChange) -> Ready[AnyIntent]:
    """Move an intent or one of its proposals.

    An intent moves by one step: created to enqueued or discarded, enqueued to submitted or discarded, submitted to
    succeeded or failed. A named proposal moves to any status that can follow its own. Repeating the
    current status is allowed.
    """
    moment = Moment(context.clock.now_ms(), context.settings.settlement_grace_s)

    async def write(tx: Transaction) -> str:
        await recording.move(tx, hash.raw, body, caller.name, moment, context.disk.require)
        return await store.shown(tx, hash.raw, moment)

    shown = await context.database.write(write, order=hash.raw)
    if body.proposal is None:
        context.metrics.counter("intent_moves_total", outcome=body.status).add()
    return Ready(shown.encode())


async def _target_of(context: Context, intent_hash: bytes) -> tuple[Address, int | None]:
    """The settlement contract of an intent and the number of its operations, which its proposals must match.

    Proposals are signed under the contract's domain. The number is None for an intent of generation 1. Both are part
    of the intent's hash, so they never change. Raises `IntentNotFound`.
    """
    row = await context.database.fetch_one(
        "SELECT settler, operation_count FROM intents WHERE hash = ?", (intent_hash,)
    )
    if row is None:
        raise IntentNotFound("no intent is recorded under this hash")
    return Address.from_raw(row[0]), row[1]


OPERATIONS: Final[tuple[Operation, ...]] = (
    append_log, append_proposal, get_intent, list_intents, list_moves, move_intent, put_intent,
)  # fmt: skip
