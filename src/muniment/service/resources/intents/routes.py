"""The endpoints of intents: the two that read intents, and those through which operators write them."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from muniment.protocol.errors import IntentNotFound, InvalidTimestamp
from muniment.protocol.evm.hex import Bytes32
from muniment.protocol.intents.lifecycle import Moment
from muniment.protocol.intents.types import AnyIntent
from muniment.service.context import Context
from muniment.service.http.openapi import LISTED, TAGGED
from muniment.service.http.operation import Operation, operation
from muniment.service.http.paging import check_cursor, page_links, settled_before
from muniment.service.http.reply import JSON, Ready, Streamed, etag_matches
from muniment.service.http.request import Request
from muniment.service.resources.intents import listing, operator_routes, store
from muniment.service.resources.intents.queries import IntentQuery
from muniment.service.resources.intents.reading.moves import list_moves
from muniment.service.running.limits.costs import PAGE, Cost, Shed

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
    moment = Moment(context.now_ms(), context.settings.settlement_grace_s)
    reader = context.reader_for(request)
    numbers = context.epochs.numbers(reader, "intents")
    await check_cursor(query.cursor, numbers)
    settled = await settled_before(query, query.sort, numbers)
    page = await listing.search(reader, query, moment, context.client(request))
    links = await page_links("/intents", request.query, page, query, query.sort, settled, numbers)
    return page.reply((JSON, *links))


@operation(
    "GET", "/intents/{hash}", cost=_WHOLE, sheds=Shed.READ, refuses=(IntentNotFound,),
    answers=TAGGED, headers_read={"if-none-match": "ETags that the client has"},
)  # fmt: skip
async def get_intent(context: Context, request: Request, hash: Bytes32) -> Ready[AnyIntent] | Streamed:
    """Read an intent with all its proposals and logs.

    The ETag changes with each of them, with the status, and when the intent expires.
    """
    moment = Moment(context.now_ms(), context.settings.settlement_grace_s)
    reader = context.reader_for(request)
    head = await store.find(reader, hash.raw, moment)
    if head is None:
        raise IntentNotFound("no intent is recorded under this hash")
    headers = (JSON, (b"etag", head.etag.encode()))
    if etag_matches(request.header(b"if-none-match"), head.etag):
        return Ready(b"", headers, 304)
    pieces = store.pieces(reader, head)
    if head.is_small:
        return Ready(b"".join([piece async for piece in pieces]), headers)
    return Streamed(pieces, headers)


OPERATIONS: Final[tuple[Operation, ...]] = (get_intent, list_intents, list_moves, *operator_routes.OPERATIONS)
