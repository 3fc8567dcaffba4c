"""Answers of the API as pages need them: the query without empty fields, records, and the cursor of the next page."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import msgspec

from muniment.http.reply import Ready, closed_after
from muniment.wire import decode_text

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from muniment.context import Context
    from muniment.http.paging import PageQuery
    from muniment.http.query import QueryReader
    from muniment.http.reply import Reply
    from muniment.http.request import Request

# Rows of a listing on one page.
ROWS: Final = 25
_LINK: Final = re.compile(rb'[?&]cursor=([A-Za-z0-9_-]+)>; rel="(next|prev)"')

Q = TypeVar("Q", bound="PageQuery")
T = TypeVar("T")


class Listing(NamedTuple):
    """The records of a page, with the cursors of the pages around it; empty where there is none."""

    records: list[Any]
    next: str
    prev: str


def read_query(request: Request, reader: QueryReader[Q], **fixed: object) -> Q:
    """The filters in the address of a page, with its number of rows and what is `fixed`.

    A form sends the fields that nobody filled in as well: they are left out. Raises `InvalidParameter` or a kin of it.
    """
    filled = b"&".join(part for part in request.query.split(b"&") if part.partition(b"=")[2])
    return msgspec.structs.replace(reader.read(filled), limit=ROWS, **fixed)


async def listing(
    list_records: Callable[[Context, Request, Any], Awaitable[Reply]],
    context: Context, request: Request, query: PageQuery, kind: Any,
) -> Listing:  # fmt: skip
    """The answer of the operation of a listing as records of `kind`."""
    reply = await list_records(context, request, query)
    body = await whole(reply)
    links = {
        found[2]: found[1].decode()
        for name, value in reply.headers
        if name == b"link"
        for found in _LINK.finditer(value)
    }
    return Listing(decoded(body, list[kind]), links.get(b"next", ""), links.get(b"prev", ""))


async def whole(reply: Reply) -> bytes:
    """The body of an answer; a listing bounds its length."""
    if isinstance(reply, Ready):
        return reply.body
    async with closed_after(reply.chunks) as pieces:
        return b"".join([piece async for piece in pieces])


def decoded(body: bytes, kind: type[T]) -> T:
    """An answer of the API as its record."""
    return msgspec.json.decode(body, type=kind, dec_hook=decode_text)
