"""Answers of the API as pages need them: the query without empty fields, records, and the cursor of the next page."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar
from urllib.parse import unquote_to_bytes

import msgspec

from muniment.protocol.errors import InvalidHex, RunNotFound
from muniment.protocol.evm.hex import Bytes32
from muniment.protocol.functions.types import Function
from muniment.protocol.intents.types import FIRST, AnyIntent, Intent, OperationsIntent
from muniment.protocol.runs.types import Run
from muniment.protocol.wire import decode_text
from muniment.service.http.paging import admit_page
from muniment.service.http.reply import Ready, closed_after
from muniment.service.resources.functions.routes import get_function
from muniment.service.resources.intents.routes import list_intents
from muniment.service.resources.runs.queries import RunQuery
from muniment.service.resources.runs.routes import get_run, list_runs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from muniment.protocol.ipfs.cid import Cid
    from muniment.protocol.triggers.types import Trigger
    from muniment.service.context import Context
    from muniment.service.http.operation import Operation
    from muniment.service.http.paging import PageQuery
    from muniment.service.http.query import QueryReader
    from muniment.service.http.reply import Reply
    from muniment.service.http.request import Request
    from muniment.service.resources.intents.queries import IntentQuery

# Parameters that the API has in milliseconds since 1970, and forms as a date and a time in UTC.
TIMES: Final = ("createdAfter", "createdBefore")
# `2026-11-20T19:48:00.123`, the longest time that a browser sends.
_TIME_LENGTH_MAX: Final = 23


def asked(request: Request) -> bytes:
    """The query of a page's address for the API: without empty fields, times in milliseconds.

    An unreadable time stays as it is: the API refuses it.
    """
    return b"&".join(_api_parameter(part) for part in request.query.split(b"&") if part.partition(b"=")[2])


def _api_parameter(part: bytes) -> bytes:
    name, _, value = part.partition(b"=")
    if name.decode("ascii", "replace") not in TIMES:
        return part
    moment_ms = milliseconds_of(unquote_to_bytes(value[: 3 * _TIME_LENGTH_MAX]).decode("ascii", "replace"))
    return part if moment_ms is None else b"%s=%d" % (name, moment_ms)


def milliseconds_of(text: str) -> int | None:
    """A time in UTC, such as `2026-11-20T19:48`, in milliseconds since 1970; None for other texts."""
    if len(text) > _TIME_LENGTH_MAX or "T" not in text:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return None if moment.tzinfo else round(moment.replace(tzinfo=UTC).timestamp() * 1000)


# Rows of a listing on one page.
ROWS: Final = 25
_LINK: Final = re.compile(rb'[?&]cursor=([A-Za-z0-9_-]+)>; rel="(next|prev)"')

Q = TypeVar("Q", bound="PageQuery")
T = TypeVar("T")


class _Generation(msgspec.Struct):
    generation: int


class Listing(NamedTuple):
    """The records of a page, with the cursors of the next and the previous page; empty without such a page."""

    records: list[Any]
    next: str
    prev: str


def read_query(request: Request, reader: QueryReader[Q], fixed: bytes = b"") -> Q:
    """The filters in the address of a page, with its number of rows and `fixed` parameters.

    Raises `InvalidParameter` or a related refusal.
    """
    name = fixed.partition(b"=")[0]
    given = [part for part in asked(request).split(b"&") if part and part.partition(b"=")[0] != name]
    query = b"&".join([*given, fixed] if fixed else given)
    wanted = msgspec.structs.replace(reader.read(query), limit=ROWS)
    admit_page(request, wanted)
    return wanted


async def listing(
    operation: Operation, context: Context, request: Request, query: PageQuery, kind: type[Any]
) -> Listing:
    """The answer of a listing's operation as records of `kind`."""
    reply = await operation.handler(context, request, query)
    return Listing(decoded(await whole(reply), list[kind]), *_cursors(reply))


async def record(operation: Operation, context: Context, request: Request, key: object, kind: type[T]) -> T:
    """The record that an operation reads by its key, as a `kind`. Raises the refusals of the operation."""
    return decoded(await whole(await operation.handler(context, request, key)), kind)


async def function(context: Context, cid: Cid) -> Function:
    """A function. Raises `FunctionNotFound`."""
    return decoded((await get_function.handler(context, cid)).body, Function)


async def intents(context: Context, request: Request, query: IntentQuery) -> Listing:
    """A page of intents; each record has the form of its generation."""
    reply = await list_intents.handler(context, request, query)
    bodies = decoded(await whole(reply), list[msgspec.Raw])
    return Listing([intent(bytes(body)) for body in bodies], *_cursors(reply))


async def last_runs(context: Context, request: Request, triggers: Sequence[Trigger]) -> dict[str, Run]:
    """The newest run of each of these triggers, at most a hundred, by signature; triggers without one are left out."""
    if not triggers:
        return {}
    query = RunQuery(trigger_sigs=[each.sig for each in triggers], latest="1", limit=len(triggers))
    found = await listing(list_runs, context, request, query, Run)
    return {each.trigger_sig: each for each in found.records}


async def run_of(context: Context, request: Request, intent: AnyIntent) -> Run | None:
    """The run that made an intent: the one that the intent names, if that run lists it."""
    try:
        named = Bytes32.parse(intent.execution_hash)
        run = await record(get_run, context, request, named, Run)
    except (InvalidHex, RunNotFound):
        return None
    return run if any(each.hash == intent.hash for each in run.outputs) else None


def intent(body: bytes) -> AnyIntent:
    """An intent in the form of its generation."""
    generation = msgspec.json.decode(body, type=_Generation).generation
    return decoded(body, Intent if generation == FIRST else OperationsIntent)


async def whole(reply: Reply) -> bytes:
    """The body of an answer; a listing bounds its length."""
    if isinstance(reply, Ready):
        return reply.body
    async with closed_after(reply.chunks) as pieces:
        return b"".join([piece async for piece in pieces])


def decoded(body: bytes, kind: type[T]) -> T:
    """An answer of the API as its record."""
    return msgspec.json.decode(body, type=kind, dec_hook=decode_text)


def _cursors(reply: Reply) -> tuple[str, str]:
    """The cursors in the `next` and `prev` links of an answer; empty without such a link."""
    links = {
        found[2]: found[1].decode()
        for name, value in reply.headers
        if name == b"link"
        for found in _LINK.finditer(value)
    }
    return links.get(b"next", ""), links.get(b"prev", "")
