"""A whole registry from one database to another: every row as it is, numbers and times too, in one transaction.

The one that is read is read in one view, whatever is written to it meanwhile. The one that is written to holds nothing
before, and nothing until all is there: so there is nothing to take up again after an interruption, nor to clear away.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from muniment.storage.migrate import migrations, missing

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Sequence

    from muniment.storage.database import Row

# Rows that are read, and then written, at once. A row is a record of a kilobyte as a rule, and at most the largest body
# of a request (256 KiB unless set otherwise): then 64 MiB are in memory.
ROWS_AT_ONCE: Final = 250


@dataclass(frozen=True, slots=True)
class Table:
    """A table that is copied, and the columns by which a row of it is named, in whose order it is read."""

    name: str
    key: tuple[str, ...]

    @property
    def order(self) -> str:
        """What ORDER BY says."""
        return ", ".join(self.key)


# Those that others refer to come first.
TABLES: Final = tuple(
    Table(name, tuple(key.split()))
    for name, key in (
        ("users", "address"),
        ("used_nonces", "address nonce_window slot"),
        ("functions", "seq"),
        ("function_creators", "seq"),
        ("triggers", "seq"),
        ("deactivations", "signature"),
        ("intents", "seq"),
        ("intent_proposals", "intent_seq n"),
        ("intent_logs", "intent_seq n"),
        ("executions", "chain_id block_hash transaction_hash log_index"),
        ("chain_progress", "chain_id settler"),
        ("chain_blocks", "chain_id number"),
        ("leases", "name"),
        ("imports", "source"),
        ("operators", "name"),
        ("audit_entries", "seq"),
        ("time_differences", "differ_ms"),
        ("forgotten_nonces", "id"),
    )
)
# Tables that are not copied, and why.
LEFT: Final = {
    "schema_migrations": "each database has its own: what was applied to it, and when",
    "sqlite_sequence": "SQLite keeps it itself, by the rows that are added",
    "epoch": "`copy_epoch` takes it, unless TO has had another life",
    "blocks": "`muniment blocks copy` takes them: hash by hash, from wherever they are to wherever they will be",
}
# What is said of a target that is not free after a few seconds.
OTHERS_WRITE: Final = "somebody else is writing to TO, which has to be left alone"
# Listings of these turn bounds on the time into bounds on `seq`.
_LISTED_BY_TIME: Final = {"triggers", "intents"}


class RowRefused(Exception):
    """A row that cannot be read, or is not taken: its number among those that were given, if it is known, and why."""

    def __init__(self, index: int | None, reason: str) -> None:
        super().__init__(reason)
        self.index = index
        self.reason = reason


class Side(Protocol):
    """One of the two databases. Every method raises `DatabaseUnavailable` when it does not answer."""

    @property
    def engine(self) -> str:
        """The name of its migrations."""
        ...

    async def ledger(self) -> dict[str, str]:
        """The migrations that were applied to it, name to hash."""
        ...

    async def columns(self, table: str) -> list[str]:
        """The names of a table's columns; none where there is no such table."""
        ...

    async def count(self, table: str) -> int:
        """How many rows there are."""
        ...

    async def epoch(self) -> Row | None:
        """The number of its epoch, and how many it had before; None where the row is gone."""
        ...


class Source(Side, Protocol):
    """The database that is read, in one view of it."""

    def rows(self, table: Table, columns: Sequence[str]) -> AsyncGenerator[list[Row]]:
        """All rows in the order of their key, at most `ROWS_AT_ONCE` at once. Raises `ValueError` for damage."""
        ...

    async def has_changed(self) -> bool:
        """Whether anything was written since the view began, which ends with this."""
        ...


class Target(Side, Protocol):
    """The database that is written to, in one transaction that keeps other writers out until it ends."""

    async def has_numbered(self) -> bool:
        """Whether it ever gave numbers to rows, of which none is left."""
        ...

    async def put_epoch(self, number: int, renewals: int) -> None:
        """Be in the epoch `number`, the one after so many others."""
        ...

    async def add(self, table: str, columns: Sequence[str], rows: list[Row]) -> None:
        """Add rows. Raises `RowRefused`; the transaction is of no more use then."""
        ...

    async def commit(self, times_differ_ms: int) -> None:
        """Have all of it there, and new rows numbered behind.

        `times_differ_ms` is by how much the time in a row may be ahead of the time in a later one.
        """
        ...


async def require_level(side: Side, name: str) -> None:
    """Raise `ValueError` unless `side` has this release's migrations and no others, whose tables would be unknown."""
    known, applied = migrations(side.engine), await side.ledger()
    if absent := [migration.name for migration in missing(known, applied)]:
        raise ValueError(f"{name} lacks migrations, which `muniment migrate` applies: {', '.join(absent)}")
    if newer := sorted(applied.keys() - {migration.name for migration in known}):
        raise ValueError(f"{name} has migrations that this release does not know: {', '.join(newer)}")


async def require_empty(side: Side) -> None:
    """Raise `ValueError` when there is a row in any table but those that are left. Its schema may be of any level."""
    if held := [each.name for each in TABLES if await side.columns(each.name) and await side.count(each.name)]:
        raise ValueError(f"TO holds a registry: there are rows in {', '.join(held)}")


async def copy_epoch(source: Source, target: Target, number: int) -> bool:
    """Go on in the epoch of `source`, whose numbers stay; `target` holds no row.

    Where it has been a registry before, cursors that it gave out may be about: then the epoch `number` begins, and this
    returns True.
    """
    own, theirs = await target.epoch(), await source.epoch()
    has_served = bool(own and own[1]) or await target.has_numbered()
    renewals = max(each[1] for each in (own, theirs, (0, 0)) if each)
    if has_served:
        await target.put_epoch(number, renewals + 1)
    elif theirs:
        await target.put_epoch(*theirs)
    return has_served


async def counted(source: Source) -> dict[str, int]:
    """How many rows each table has."""
    return {table.name: await source.count(table.name) for table in TABLES}


async def copy_rows(source: Source, target: Target, told: Callable[[int], None]) -> int:
    """Copy every row of every table; `told` hears of each few that are written. The `times_differ_ms` of them all.

    Raises `ValueError` that names the table and the key of a row which cannot be read or is not taken.
    """
    differ_ms = 0
    for table in TABLES:
        columns, order = await source.columns(table.name), _Order()
        at = columns.index("created_at_ms") if table.name in _LISTED_BY_TIME else None
        async for rows in source.rows(table, columns):
            try:
                await target.add(table.name, columns, rows)
            except RowRefused as refusal:
                raise ValueError(_told(table, columns, rows, refusal)) from refusal
            if at is not None:
                order.see(rows, at)
            told(len(rows))
            await asyncio.sleep(0)  # an engine that never waits would let nobody interrupt
        differ_ms = max(differ_ms, order.differ_ms)
    return differ_ms


async def require_counts(target: Target, counts: dict[str, int]) -> None:
    """Raise `ValueError` unless `target` holds as many rows of each table."""
    for name, count in counts.items():
        if (held := await target.count(name)) != count:
            raise ValueError(f"{name}: FROM has {count} rows, and TO was given {held}; nothing is kept")


@dataclass(slots=True)
class _Order:
    """Whether times follow the order of rows, as they do where one writer numbers them."""

    newest_ms: int = 0
    differ_ms: int = 0

    def see(self, rows: list[Row], at: int) -> None:
        for row in rows:
            self.newest_ms = max(self.newest_ms, row[at])
            self.differ_ms = max(self.differ_ms, self.newest_ms - row[at])


def _told(table: Table, columns: Sequence[str], rows: list[Row], refusal: RowRefused) -> str:
    if refusal.index is None:
        return f"{table.name}: TO does not take a row of FROM: {refusal.reason}; nothing is kept"
    row = rows[refusal.index]
    key = named(table, [row[columns.index(column)] for column in table.key])
    return f"{key}: TO does not take this row of FROM: {refusal.reason}; nothing is kept"


def named(table: Table, key: Sequence[object]) -> str:
    """A row by its table and key."""
    shown = (f"{name} {_shown(value)}" for name, value in zip(table.key, key, strict=True))
    return f"{table.name}, {', '.join(shown)}"


def _shown(value: object) -> str:
    return f"0x{value.hex()}" if isinstance(value, bytes) else repr(value)
