"""Functions in the database: their JSON records, their inputs for triggers, and their creators."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final, LiteralString, NamedTuple

import msgspec
from msgspec import Meta

from muniment.protocol.errors import VersionTaken
from muniment.protocol.evm.address import Address
from muniment.protocol.functions.rules import name_key
from muniment.protocol.functions.types import NamePrefix
from muniment.protocol.ipfs.cid import DAG_PB, Cid
from muniment.service.http.paging import EMPTY, LIST_ELEMENTS_PER_UNIT, OFFSET_ROWS_PER_UNIT, Page, PageQuery
from muniment.service.storage.listing import Listed, Part, page_statements, unindexed
from muniment.service.storage.ordered import OrderedRows
from muniment.service.storage.pages import read_page
from muniment.service.storage.scopes import Scope, are_few, first_rows, has_row_after, scope
from muniment.service.storage.sql import Condition, placeholders

if TYPE_CHECKING:
    from muniment.service.storage.database import Database, Reader, Transaction


# As many as a page has (GET /functions).
CIDS_MAX: Final = 100
# Rows that the event loop reads in addition to those of a page: well under a millisecond.
ROWS_WALKED_MAX: Final = 500
_EVERY_FUNCTION: Final = Listed("functions f", "f.seq", "f.record")
_FUNCTIONS_OF_CREATORS: Final = Listed(
    "function_creators c JOIN functions f ON f.seq = c.function_seq", "c.seq", "f.record"
)
# The index on names has these columns.
_BY_NAME: Final = Listed("functions", columns="seq, name_key")


class FunctionQuery(PageQuery, frozen=True):
    """Which functions to list."""

    cids: (
        Annotated[list[Cid], Meta(min_length=1, max_length=CIDS_MAX, description="Only these, in either CID version")]
        | None
    ) = None
    creator: Address | None = None
    name: NamePrefix | None = None

    @property
    def units(self) -> int:
        """As of any page, for the CIDs that are looked up, and for the rows that are walked for a name."""
        walked = 3 * ROWS_WALKED_MAX // OFFSET_ROWS_PER_UNIT if self.name is not None else 0
        return super().units + len(self.cids or ()) // LIST_ELEMENTS_PER_UNIT + walked


@dataclass(frozen=True, slots=True)
class NewFunction:
    """A row to insert: the digest of the root block, the hash of the bundle's bytes (`content`), the record as JSON."""

    digest: bytes
    content: bytes
    inputs: dict[str, str]
    created_at_ms: int
    record: str


async def find_record(database: Reader | Transaction, digest: bytes) -> str | None:
    """The record of the bundle whose root block has this digest."""
    row = await database.fetch_one("SELECT record FROM functions WHERE digest = ?", (digest,))
    return row[0] if row else None


async def find_content(database: Database | Transaction, content: bytes) -> str | None:
    """The record of the bundle with these bytes."""
    row = await database.fetch_one("SELECT record FROM functions WHERE content = ?", (content,))
    return row[0] if row else None


async def find_inputs(database: Database, digest: bytes) -> dict[str, str] | None:
    """The inputs of a function, name to type word, in the order of its manifest."""
    row = await database.fetch_one("SELECT inputs FROM functions WHERE digest = ?", (digest,))
    return msgspec.json.decode(row[0], type=dict[str, str]) if row else None


async def find_taken(
    database: Database | Transaction, creator: Address, name: str, version: str, content: bytes
) -> VersionTaken | None:
    """The refusal if `creator` has deployed other bytes under this name and version, otherwise None."""
    row = await database.fetch_one(
        """SELECT f.content FROM function_creators c JOIN functions f ON f.seq = c.function_seq
           WHERE c.creator = ? AND c.name = ? AND c.version = ?""",
        (creator.raw, name, version),
    )
    if row is None or row[0] == content:
        return None
    return VersionTaken(f"you have deployed other bytes as {name} {version}; raise the version in manifest.json")


async def insert(transaction: Transaction, new: NewFunction, creator: Address, name: str, version: str) -> str:
    """Register the function unless its bytes are registered; `creator` becomes one of its creators.

    Returns the record that was stored first. Raises `VersionTaken`.
    """
    if taken := await find_taken(transaction, creator, name, version, new.content):
        raise taken
    inserted = await transaction.execute(
        """INSERT INTO functions (digest, content, inputs, created_at_ms, name_key, record) VALUES (?, ?, ?, ?, ?, ?)
           ON CONFLICT DO NOTHING""",
        (
            new.digest,
            new.content,
            msgspec.json.encode(new.inputs).decode(),
            new.created_at_ms,
            name_key(name),
            new.record,
        ),
    )
    joined = await transaction.execute(
        """INSERT INTO function_creators (creator, function_seq, name, version, joined_at_ms)
           SELECT ?, seq, ?, ?, ? FROM functions WHERE content = ? ON CONFLICT DO NOTHING""",
        (creator.raw, name, version, new.created_at_ms, new.content),
    )
    # No row was inserted: the creator already has this version, with these or with concurrently uploaded bytes.
    if not joined and (taken := await find_taken(transaction, creator, name, version, new.content)):
        raise taken
    record = new.record if inserted else await find_content(transaction, new.content)
    assert record is not None  # noqa: S101 - it was there or was inserted, in this transaction
    return record


async def count_functions(database: Database) -> int:
    """The number of functions. Raises `DeadlineExceeded`."""
    ((count,),) = await database.fetch_slow("SELECT count(*) FROM functions")
    return count


class Joined(NamedTuple):
    """A creator of a function: the number of the upload, the wallet, the function's record, and the time."""

    seq: int
    creator: bytes
    record: str
    joined_at_ms: int


JOINED: Final = OrderedRows(
    Joined, "function_creators", "creator, record, joined_at_ms",
    joined=" JOIN functions ON functions.seq = function_creators.function_seq",
)  # fmt: skip


def table_of_numbers(query: FunctionQuery) -> LiteralString:
    """The table whose sequence numbers give the order of a page."""
    return "functions" if query.creator is None else "function_creators"


async def search(database: Reader, query: FunctionQuery, client: str = "") -> Page:
    """A page of records in the order of commits; with a creator, in the order of the creator's deployments.

    `client` is the address of the waiting client. Raises `InvalidParameter` for too large an offset, and
    `DeadlineExceeded`.
    """
    if query.is_long:
        if query.cids is not None or not await has_row_after(database, table_of_numbers(query), query, client):
            return EMPTY
        query.check_offset()
    listed, conditions = _EVERY_FUNCTION, list[Condition]()
    if query.creator is not None:
        listed = _FUNCTIONS_OF_CREATORS
        conditions.append(Condition("c.creator = ?", (query.creator.raw,)))
    if query.cids is not None:
        digests = sorted({cid.digest for cid in query.cids if cid.codec == DAG_PB}) or [b""]
        conditions.append(Condition(f"f.digest IN ({placeholders(len(digests))})", tuple(digests)))
    search = _Search(database, query, listed, client)
    within = await scope(database, query)
    if query.name is None:
        return await search.page(Part(tuple(conditions)), within)
    tested = _named("f.name_key", query.name)
    if query.creator is not None:
        # True of every row, but of both tables: otherwise PostgreSQL tests all functions before it joins them.
        tested = tested._replace(sql=f"{tested.sql} AND c.seq > 0")
    part = Part((*conditions, *unindexed(tested)))
    if query.cids is not None:
        return await search.page(part, within)
    return await search.page_by_name(part, within, _named("name_key", query.name))


def _named(column: LiteralString, prefix: NamePrefix) -> Condition:
    """The condition that a key begins with that of `prefix`: no byte of UTF-8 is as great as the last of the bound."""
    key = name_key(prefix)
    return Condition(f"{column} >= ? AND {column} < ?", (key, key + b"\xff"))


@dataclass(frozen=True, slots=True)
class _Search:
    """The search for a page."""

    database: Reader
    query: FunctionQuery
    listed: Listed
    client: str

    async def page(self, part: Part, within: Scope, listed: Listed | None = None, *, is_slow: bool = False) -> Page:
        """The page of the rows of `part`; `is_slow`: it may read many rows besides."""
        statements = page_statements(
            listed or self.listed, [part], within, self.query, as_written=self.database.plans_as_written
        )
        if is_slow:
            statements = statements._replace(is_long=True)
        return Page(*await read_page(self.database, statements, self.client))

    async def page_by_name(self, part: Part, within: Scope, named: Condition) -> Page:
        """The page of the rows of `part`, which are tested for a name, without a long walk on the event loop.

        If few functions have the name, its index finds all of them. If many have it, the page is usually among the
        first rows; if it is not, a thread sorts all that have the name, or walks all of the creator.
        """
        query, database = self.query, self.database
        whole, listed, table, walked = part, self.listed, "functions", tuple[Condition, ...]()
        if query.creator is not None:
            table, walked = "function_creators", (Condition("creator = ?", (query.creator.raw,)),)
        else:
            whole, listed = Part(few=named), _BY_NAME
            if await are_few(database, "functions", [named], ROWS_WALKED_MAX):
                return await self.page(whole, within, listed)
        if not query.is_long:
            near = await first_rows(database, table, walked, within, sort=query.sort, count=ROWS_WALKED_MAX)
            page = await self.page(part, near)
            if page.has_more or near == within:
                return page
        return await self.page(whole, within, listed, is_slow=True)
