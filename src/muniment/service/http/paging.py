"""Pages of a listing: by offset, or after an opaque cursor in commit order. `Link` leads to the next (RFC 8288)."""

from __future__ import annotations

import base64
import binascii
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import lru_cache
from typing import Annotated, Any, ClassVar, Final, Literal, NamedTuple, Protocol, Self
from urllib.parse import unquote_to_bytes

from msgspec import Meta

from muniment.protocol.errors import CursorTooOld, DeadlineExceeded, Fault, InvalidParameter, Overloaded, Refusal
from muniment.protocol.wire import ProvedText, Record
from muniment.service.http.reply import JSON, Ready, Streamed
from muniment.service.http.request import Request, invalid_parameter
from muniment.service.running.limits.costs import Shed

# The largest integer that SQLite and PostgreSQL hold; a larger number or offset is refused.
OFFSET_MAX: Final = 2**63 - 1
# Cached cursors: a reader follows one listing for long.
_KEPT: Final = 1_024
# The letter in the cursors of each listing, by its table; intents have `i`.
_LETTERS: Final = {"triggers": "t", "functions": "f", "function_creators": "c", "runs": "r"}
_INTENTS: Final = "i"
# A letter, `-`, the digits of `OFFSET_MAX`, `-` and eight of the epoch, in base64.
_CURSOR_LENGTH_MAX: Final = 40
_EPOCH_MAX: Final = 2**32 - 1


class Cursor(ProvedText):
    """The end of a page, in base64url so that clients do not depend on its form.

    It holds the listing, the sequence number of the last row and, after the registry's first epoch, the epoch of that
    number.
    """

    __slots__ = ()

    schema: ClassVar[dict[str, Any]] = {
        "type": "string",
        "pattern": f"^[A-Za-z0-9_-]{{2,{_CURSOR_LENGTH_MAX}}}$",
        "description": "Opaque; from the `Link` header of the previous page. Not together with `offset`",
        "examples": ["dC0xMDA"],
    }
    refuses = InvalidParameter

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises `InvalidParameter` for a text that is not a cursor."""
        try:
            letter, seq, epoch = _place(text) if len(text) <= _CURSOR_LENGTH_MAX else ("", -1, None)
        except (binascii.Error, ValueError):
            letter, seq, epoch = "", -1, None
        is_possible = 0 <= seq <= OFFSET_MAX and 0 <= (epoch or 0) <= _EPOCH_MAX
        is_known = letter in {*_LETTERS.values(), _INTENTS}
        if not is_possible or not is_known or _written(letter, seq, epoch).decode() != text:
            raise InvalidParameter("this service did not issue the cursor")
        return cls(text)

    def is_of(self, table: str) -> bool:
        """Whether it belongs to the listing of this table."""
        return _place(self)[0] == _letter_of(table)

    @property
    def seq(self) -> int:
        """The sequence number of the row before."""
        return _place(self)[1]

    @property
    def epoch(self) -> int | None:
        """The epoch of the number; None in a registry's first."""
        return _place(self)[2]


def cursor_after(table: str, seq: int, epoch: int | None) -> bytes:
    """A cursor after the row of this table with this sequence number; `epoch` is None in a registry's first."""
    return _written(_letter_of(table), seq, epoch)


def _letter_of(table: str) -> str:
    return _LETTERS.get(table, _INTENTS)


def _written(letter: str, seq: int, epoch: int | None) -> bytes:
    # The base64 of these characters never has `+` or `/`, which base64url replaces.
    plain = b"%b-%d" % (letter.encode(), seq)
    if epoch is not None:
        plain += b"-%08x" % epoch
    return binascii.b2a_base64(plain, newline=False).rstrip(b"=")


@lru_cache(maxsize=_KEPT)
def _place(text: str) -> tuple[str, int, int | None]:
    """The letter, number and epoch in a cursor; raises `ValueError` for most other texts."""
    plain = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True).decode("ascii")
    letter, _, place = plain.partition("-")
    digits, _, epoch = place.partition("-")
    return letter, int(digits), int(epoch, 16) if epoch else None


LIMIT_MAX = 100
LIMIT_DEFAULT = 10
# Smaller offsets are skipped on the event loop in well under a millisecond, larger ones in a thread.
OFFSET_QUICK_MAX = 1_000
# The largest offset that is served if any row follows it: a thousand of the longest pages, some milliseconds.
OFFSET_WALKED_MAX = 100_000
# Rows that an offset skips, and elements of a list, for one unit.
OFFSET_ROWS_PER_UNIT = 128
LIST_ELEMENTS_PER_UNIT = 4
# A page after a cursor ends before the record that makes its JSON longer than this: its `next` link goes on.
CURSOR_PAGE_BYTES_MAX = 1024 * 1024
# Query strings whose links are cached, up to half a kilobyte each: a reader follows one listing for long. Longer ones,
# lists of signatures, have no `prev` link: two of them exceed the header size that a usual proxy accepts.
_QUERIES_KEPT = 1_024
_KEPT_BYTES_MAX = 512
# The parameters that select a page.
_PLACE = frozenset({b"cursor", b"offset"})
_PLACE_AND_ORDER = _PLACE | {b"sort"}
# The longest of these names with every character as a percent escape.
_ENCODED_NAME_BYTES_MAX = 3 * max(map(len, _PLACE_AND_ORDER))


class Numbers(Protocol):
    """Sequence numbers in the cursors of a listing."""

    @property
    def table(self) -> str:
        """The table that they number."""
        ...

    async def epoch(self) -> int | None:
        """The present epoch of cursors; None in a registry's first."""
        ...

    async def has_given(self, epoch: int | None, seq: int) -> bool:
        """Whether a cursor with this number may have been issued in this epoch."""
        ...

    async def settled(self) -> int:
        """A number below which no more rows will appear."""
        ...


async def _check_cursor(cursor: Cursor | None, numbers: Numbers) -> None:
    """Raise `CursorTooOld` if rows after the cursor could be missed, `InvalidParameter` for a foreign cursor."""
    if cursor is not None and not cursor.is_of(numbers.table):
        raise invalid_parameter("cursor", "is of another listing; begin without a cursor")
    if cursor is None or await numbers.has_given(cursor.epoch, cursor.seq):
        return
    detail = (
        "this cursor was issued before the registry was restored or moved, and may point to another row now: begin "
        "again without cursor (with sort=1 at the oldest row), and skip the records that you have"
    )
    raise CursorTooOld(detail, faults=[Fault(detail, parameter="cursor")])


Offset = Annotated[
    int,
    Meta(
        ge=0, le=OFFSET_MAX,
        description="Rows to skip, at most 100,000. Prefer cursors: constant cost, no missed rows",
    ),
]  # fmt: skip
Limit = Annotated[int, Meta(ge=1, le=LIMIT_MAX, description="Rows in a page")]
Sort = Annotated[Literal[1, -1], Meta(description="1: oldest first, -1: newest first, by arrival")]


class PageQuery(Record, frozen=True):
    """The paging part of a listing's query."""

    offset: Offset = 0
    limit: Limit = LIMIT_DEFAULT
    cursor: Cursor | None = None
    sort: Sort = -1

    refuses_with: ClassVar[tuple[type[Refusal], ...]] = (DeadlineExceeded, CursorTooOld)
    # Records of the limit for one unit.
    records_per_unit: ClassVar[int] = 16

    def __post_init__(self) -> None:
        """Refuse a cursor together with an offset."""
        if self.cursor is not None and self.offset:
            raise invalid_parameter("cursor", "and offset cannot be given together")

    @property
    def units(self) -> int:
        """Units of the page on top of its operation: for its limit, and for the rows that its offset skips."""
        return self.limit // self.records_per_unit + min(self.offset, OFFSET_WALKED_MAX) // OFFSET_ROWS_PER_UNIT

    @property
    def is_long(self) -> bool:
        """Whether the page skips so many rows that a thread reads it."""
        return self.offset > OFFSET_QUICK_MAX

    @property
    def bytes_max(self) -> int | None:
        """The most bytes of the page; None without a cursor: clients that page by offset rely on `limit` records."""
        return None if self.cursor is None else CURSOR_PAGE_BYTES_MAX

    @property
    def offset_max(self) -> int:
        """The largest offset that is served if rows follow it."""
        return OFFSET_WALKED_MAX

    def check_offset(self) -> None:
        """Raise `InvalidParameter` for too large an offset."""
        if self.offset > self.offset_max:
            raise invalid_parameter(
                "offset", f"is at most {self.offset_max}; to go further, follow the cursor in the Link header"
            )


def admit_page(request: Request, query: PageQuery) -> None:
    """Charge a page by its query. Raises `Overloaded` for an offset in an overloaded process."""
    request.due_units += query.units
    if query.offset and request.overload is not None and request.overload.refuses(Shed.MIDDLE):
        raise Overloaded("this process is overloaded; follow cursors, or try again in a second")


class Page(NamedTuple):
    """Finished JSON records, the sequence number of the last (None for an empty page), whether more follow the page.

    `rest` reads the records after `records` on demand, in lists that are not empty. `first_seq` is the
    sequence number of the first record.
    """

    records: list[str]
    last_seq: int | None
    has_more: bool
    rest: AsyncIterator[list[str]] | None = None
    first_seq: int | None = None

    def reply(self, headers: tuple[tuple[bytes, bytes], ...]) -> Ready[Any] | Streamed:
        """The page as a JSON array."""
        records = ",".join(self.records)
        if self.rest is None:
            return Ready(f"[{records}]".encode(), headers)
        return Streamed(_chunks(f"[{records}".encode(), self.rest), headers)


EMPTY: Final = Page([], None, has_more=False)


async def _chunks(chunk: bytes, rest: AsyncIterator[list[str]]) -> AsyncIterator[bytes]:
    """A JSON array that begins with `chunk`. One chunk at a time is in memory."""
    yield chunk
    async for records in rest:
        chunk = f",{','.join(records)}".encode()
        records.clear()
        yield chunk
    yield b"]"


async def answer_page(
    request: Request, query: PageQuery, numbers: Numbers, search: Callable[[], Awaitable[Page]]
) -> Ready[Any] | Streamed:
    """The page that `search` finds, with a `Link` header, whose links are relative to the request's path.

    They lead to the next page, and from the newest rows to those that come later. With `sort=1` there always is a
    next page: at the end, a reader polls the same link and misses no row.

    Raises `CursorTooOld`, `InvalidParameter`, and what `search` raises.
    """
    await _check_cursor(query.cursor, numbers)
    begins_at_newest = query.sort != 1 and query.cursor is None and not query.offset
    settled = await numbers.settled() if begins_at_newest else 0  # before the page: later rows are not in it
    page = await search()
    last = _last_seq(page, query)
    first = _first_seq(page, settled) if begins_at_newest and len(request.query) <= _KEPT_BYTES_MAX else None
    if last is None and first is None:
        return page.reply((JSON,))
    given = _links if len(request.query) <= _KEPT_BYTES_MAX else _links.__wrapped__
    return page.reply((JSON, (b"link", given(request.query, numbers.table, last, first, await numbers.epoch()))))


@lru_cache(maxsize=_QUERIES_KEPT)  # most pages are read again before a row is added
def _links(
    query_string: bytes, table: str, last: int | None, first: int | None, epoch: int | None
) -> bytes:  # fmt: skip
    """The links after the row `last`, and to rows later than `first`; None for no such link."""
    links: list[bytes] = []
    if last is not None:
        links.append(_next_link(query_string, cursor_after(table, last, epoch)))
    if first is not None:
        links.append(_prev_link(query_string, cursor_after(table, first, epoch)))
    return b", ".join(links)


def _last_seq(page: Page, query: PageQuery) -> int | None:
    """The number of the row after which the next page begins; None without a next page."""
    if query.sort != 1:
        return page.last_seq if page.has_more else None
    if page.last_seq is not None:
        return page.last_seq
    if query.cursor is not None:
        return query.cursor.seq
    return None if query.offset else 0


def _first_seq(page: Page, settled: int) -> int:
    """The number after which later rows come than those of the first page; 0 after an empty page.

    Where rows may still appear below the first row, it is below them: on PostgreSQL rows of the last seconds may be
    repeated, on SQLite none.
    """
    return min(page.first_seq or 0, max(settled - 1, 0))


def _prev_link(query_string: bytes, cursor: bytes) -> bytes:
    """The link from the newest rows to later ones: the same filters, oldest first, after `cursor`.

    Only a page that begins at the newest row has this link: with `sort=1`, `next` leads to later rows; after a cursor
    or an offset, the link of the first page still holds.
    """
    return b'<?%bsort=1&cursor=%b>; rel="prev"' % (_without_order(query_string), cursor)


def link_after(query_string: bytes, cursor: bytes) -> tuple[bytes, bytes]:
    """The `Link` header for the page after `cursor`, with the other parameters of `query_string`."""
    return (b"link", _next_link(query_string, cursor))


def _next_link(query_string: bytes, cursor: bytes) -> bytes:
    asked = _without_place if len(query_string) <= _KEPT_BYTES_MAX else _without_place.__wrapped__
    return b'<?%bcursor=%b>; rel="next"' % (asked(query_string), cursor)


@lru_cache(maxsize=_QUERIES_KEPT)
def _without_place(query_string: bytes) -> bytes:
    """The parameters of a query that do not select a page."""
    return _without(query_string, _PLACE)


@lru_cache(maxsize=_QUERIES_KEPT)
def _without_order(query_string: bytes) -> bytes:
    """The parameters of a query that select neither a page nor an order."""
    return _without(query_string, _PLACE_AND_ORDER)


def _without(query_string: bytes, names: frozenset[bytes]) -> bytes:
    """A query string without these parameters, ready for a cursor, and without characters that would end a link.

    Names of parameters may be percent-encoded.
    """
    parts = query_string.split(b"&")
    kept = b"".join(part + b"&" for part in parts if part and not _is_named(part.partition(b"=")[0], names))
    return kept.translate(None, b'<>"')


def _is_named(name: bytes, names: frozenset[bytes]) -> bool:
    return len(name) <= _ENCODED_NAME_BYTES_MAX and unquote_to_bytes(name) in names
