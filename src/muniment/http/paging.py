"""Pages: an offset, or an opaque cursor that continues in the order of commits; the next one in `Link` (RFC 8288)."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from functools import lru_cache
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self
from urllib.parse import unquote_to_bytes

from msgspec import Meta

from muniment.errors import DeadlineExceeded, InvalidParameter, Refusal
from muniment.http.request import invalid_parameter
from muniment.wire import ProvedText, Record

LIMIT_MAX = 100
LIMIT_DEFAULT = 10
# The largest integer that SQLite and PostgreSQL hold; a larger offset is no offset.
OFFSET_MAX = 2**63 - 1
# Up to here an offset is walked in well under a millisecond on the event loop; beyond, a thread does it.
OFFSET_QUICK_MAX = 1_000
# Query strings, of half a kilobyte at most, whose part of a link is kept: readers follow the same listing for long.
_QUERIES_KEPT = 1_024
_KEPT_BYTES_MAX = 512


class Cursor(ProvedText):
    """Where a page ended: the sequence number of its last row, in base64url so that nobody builds on its form."""

    __slots__ = ()

    schema: ClassVar[dict[str, Any]] = {
        "type": "string",
        "pattern": "^[A-Za-z0-9_-]{2,32}$",
        "description": "Opaque; from the `Link` header of the page before. Not together with `offset`",
        "examples": ["cy0xMDA"],
    }
    refuses = InvalidParameter

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises `InvalidParameter` for what no page gave out."""
        try:
            plain = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True).decode("ascii")
            seq = int(plain.removeprefix("s-")) if plain.startswith("s-") else -1
        except (binascii.Error, ValueError):
            seq = -1
        if not 0 <= seq <= OFFSET_MAX or cls.after(seq) != text:
            raise InvalidParameter("the cursor is not one that this service gave out")
        return cls(text)

    @classmethod
    def after(cls, seq: int) -> Self:
        """The cursor behind the row with sequence number `seq`."""
        return cls(_cursor_after(seq).decode())

    @property
    def seq(self) -> int:
        """The sequence number of the row before."""
        return int(base64.urlsafe_b64decode(self + "=" * (-len(self) % 4))[2:])


def _cursor_after(seq: int) -> bytes:
    # Of digits and these two signs come neither of the two characters that base64url has for others.
    return binascii.b2a_base64(b"s-%d" % seq, newline=False).rstrip(b"=")


Offset = Annotated[int, Meta(ge=0, le=OFFSET_MAX, description="Rows to skip; a cursor is faster and misses none")]
Limit = Annotated[int, Meta(ge=1, le=LIMIT_MAX, description="Rows in a page")]
Sort = Annotated[Literal[1, -1], Meta(description="1: oldest first, -1: newest first, by arrival")]


class PageQuery(Record, frozen=True):
    """The paging part of a listing's query."""

    offset: Offset = 0
    limit: Limit = LIMIT_DEFAULT
    cursor: Cursor | None = None

    refuses_with: ClassVar[tuple[type[Refusal], ...]] = (DeadlineExceeded,)

    def __post_init__(self) -> None:
        """Refuse two answers to one question."""
        if self.cursor is not None and self.offset:
            raise invalid_parameter("cursor", "and offset cannot be given together")


class Page(NamedTuple):
    """Finished JSON records, the sequence number of the last (None when there are none), whether more follow."""

    records: list[str]
    last_seq: int | None
    has_more: bool

    @classmethod
    def of(cls, rows: Sequence[Sequence[Any]], limit: int) -> Self:
        """The page of `rows`, each a sequence number and a record, which were read to one beyond `limit`."""
        shown = rows[:limit]
        return cls([record for _, record in shown], shown[-1][0] if shown else None, len(rows) > limit)

    def body(self) -> bytes:
        """The page as a JSON array."""
        return f"[{','.join(self.records)}]".encode()


def next_link(
    path: str, query_string: bytes, page: Page, query: PageQuery, sort: int
) -> tuple[tuple[bytes, bytes], ...]:
    """The `Link` header of `page`, if there is a next one.

    With `sort=1` there always is: a reader that has reached the end asks the same link again, and misses nothing.
    """
    if sort == 1:
        last = query.cursor.seq if page.last_seq is None and query.cursor is not None else page.last_seq or 0
        if page.last_seq is None and query.offset:
            return ()
    elif not page.has_more or page.last_seq is None:
        return ()
    else:
        last = page.last_seq
    asked = _without_place if len(query_string) <= _KEPT_BYTES_MAX else _without_place.__wrapped__
    link = b'<%b?%bcursor=%b>; rel="next"' % (path.encode(), asked(query_string), _cursor_after(last))
    return ((b"link", link),)


@lru_cache(maxsize=_QUERIES_KEPT)
def _without_place(query_string: bytes) -> bytes:
    """A query string, to be continued, without what says which page, and without what would end a link."""
    kept = b"".join(part + b"&" for part in query_string.split(b"&") if part and not _says_where(part))
    return kept.translate(None, b'<>"')


def _says_where(part: bytes) -> bool:
    """Whether a part of a query string says which page; a name may be percent-encoded, which nobody does."""
    return unquote_to_bytes(part.partition(b"=")[0]) in {b"cursor", b"offset"}
