"""Functions in the database: the record as it is answered, its inputs for triggers, and all its creators."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
from msgspec import Meta

from muniment.errors import VersionTaken
from muniment.evm.address import Address
from muniment.http.paging import EMPTY, Page, PageQuery, Sort
from muniment.ipfs.cid import DAG_PB, Cid
from muniment.storage.pages import Asked, Source, read_page
from muniment.storage.row_counts import has_row_behind
from muniment.storage.sql import Where, placeholders

if TYPE_CHECKING:
    from muniment.storage.database import Database, Reads, Transaction


# A page of records is what anybody can want to see at once; interface, GET /functions.
CIDS_MAX: Final = 100


class FunctionQuery(PageQuery, frozen=True):
    """Which functions to list."""

    cids: (
        Annotated[list[Cid], Meta(min_length=1, max_length=CIDS_MAX, description="Only these, in either CID version")]
        | None
    ) = None
    creator: Address | None = None
    sort: Sort = -1


@dataclass(frozen=True, slots=True)
class NewFunction:
    """A row to be: the bundle's root digest, the name of its bytes, its record as JSON."""

    digest: bytes
    content: bytes
    inputs: dict[str, str]
    created_at_ms: int
    record: str


async def find_record(database: Reads | Transaction, digest: bytes) -> str | None:
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
    """The refusal that is due when `creator` has other bytes under this name and version."""
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

    Returns the record that counts, the first one. Raises `VersionTaken`.
    """
    if taken := await find_taken(transaction, creator, name, version, new.content):
        raise taken
    await transaction.execute(
        """INSERT INTO functions (digest, content, inputs, created_at_ms, record) VALUES (?, ?, ?, ?, ?)
           ON CONFLICT DO NOTHING""",
        (new.digest, new.content, msgspec.json.encode(new.inputs).decode(), new.created_at_ms, new.record),
    )
    joined = await transaction.execute(
        """INSERT INTO function_creators (creator, function_seq, name, version)
           SELECT ?, seq, ?, ? FROM functions WHERE content = ? ON CONFLICT DO NOTHING""",
        (creator.raw, name, version, new.content),
    )
    # Where none was inserted the creator had joined before, or takes the version with other bytes at this very moment.
    if not joined and (taken := await find_taken(transaction, creator, name, version, new.content)):
        raise taken
    record = await find_content(transaction, new.content)
    assert record is not None  # noqa: S101 - it was there or was inserted, in this transaction
    return record


def numbered(query: FunctionQuery) -> str:
    """The table whose numbers a page is in the order of."""
    return "functions" if query.creator is None else "function_creators"


async def search(database: Reads, query: FunctionQuery, client: str = "") -> Page:
    """A page of records in the order of commits; for one creator, in the order in which they deployed them.

    `client` is the address of whoever waits for it. Raises `InvalidParameter` for an offset that is not walked, and
    `DeadlineExceeded`.
    """
    where = Where()
    table, source, seq = numbered(query), "functions f", "f.seq"
    if query.creator is not None:
        seq = "c.seq"
        source = "function_creators c JOIN functions f ON f.seq = c.function_seq"
        where.add("c.creator = ?", query.creator.raw)
    if query.is_long:
        if query.cids is not None or not await has_row_behind(database, table, query.offset, client):
            return EMPTY
        query.check_offset()
    if query.cids is not None:
        digests = sorted({cid.digest for cid in query.cids if cid.codec == DAG_PB}) or [b""]
        where.add(f"f.digest IN ({placeholders(len(digests))})", *digests)
    after, direction = (">", "ASC") if query.sort == 1 else ("<", "DESC")
    if query.cursor is not None:
        where.add(f"{seq} {after} ?", query.cursor.seq)
    if query.sort == 1 and database.visible_before:
        where.add(f"{seq} < {database.visible_before}")
    keys, records = (
        f"SELECT {columns} FROM {source}{where} ORDER BY {seq} {direction} LIMIT ? OFFSET ?"  # noqa: S608 - text of ours
        for columns in (seq, f"{seq}, f.record")
    )
    asked = Asked(
        keys, records, Source(source, seq, "f.record", query.sort), (*where.parameters, query.limit + 1, query.offset),
        query.limit, query.bytes_max, is_long=query.is_long,
    )  # fmt: skip
    return Page(*await read_page(database, asked, client))
