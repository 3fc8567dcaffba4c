"""Copies a whole registry from one database to another: every row with its number and times, in one transaction.

The command `muniment database copy` calls it; FROM and TO are its two databases. FROM is read in one snapshot, while
others write. TO is empty before, and stays empty until the commit, so an interrupted copy leaves no rows.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, LiteralString, Protocol

from muniment.service.storage.migrate import migrations, missing

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Sequence

    from muniment.service.storage.database import Row

# Rows that are read and written as one batch. A row usually has a kilobyte, at most the size of the largest request
# body (256 KiB unless set otherwise); with such rows a batch takes 64 MiB of memory.
ROWS_PER_BATCH: Final = 250


@dataclass(frozen=True, slots=True)
class Table:
    """A table to copy, and its key columns, which give the order of its rows."""

    name: LiteralString
    key: tuple[LiteralString, ...]

    @property
    def order(self) -> LiteralString:
        """The columns for ORDER BY."""
        return ", ".join(self.key)


# A table comes before the tables that refer to it.
_KEYS: Final[dict[LiteralString, LiteralString]] = {
    "users": "address",
    "used_nonces": "address nonce_window slot",
    "functions": "seq",
    "function_creators": "seq",
    "triggers": "seq",
    "deactivations": "signature",
    "intents": "seq",
    "intent_proposals": "intent_seq n",
    "intent_logs": "intent_seq n",
    "intent_users": "address seq",
    "intent_ops": "op_type seq",
    "intent_nonces": "trigger_sig settler nonce",
    "runs": "seq",
    "run_records": "run_seq n",
    "executions": "chain_id block_hash transaction_hash log_index",
    "chain_progress": "chain_id settler",
    "chain_blocks": "chain_id number",
    "leases": "name",
    "operators": "name",
    "audit_entries": "seq",
    "time_differences": "differ_ms",
    "events": "seq",
    "tlog_epochs": "epoch",
    "tlog_cursors": "epoch kind",
    "tlog_tail": "epoch leaf_index",
    "tlog_tiles": "epoch level n",
    "tlog_runs": "epoch kind first_seq",
    "webhooks": "id",
    "webhook_attempts": "hook n",
    "webhook_dead_letters": "hook epoch seq",
    "forgotten_nonces": "id",
}
TABLES: Final = tuple(Table(name, tuple(key.split())) for name, key in _KEYS.items())
# Tables that are not copied, and why.
LEFT: Final = {
    "schema_migrations": "each database has its own ledger of migrations",
    "sqlite_sequence": "SQLite maintains it when rows are added",
    "epoch": "`copy_epoch` copies it, or begins a new epoch if TO was a registry before",
    "feed": "TO gets the number before its first event (`PUT_FLOOR`)",
    "blocks": "`muniment blocks copy` copies them, between any two stores",
}
# Events before the first one may have been removed, so a follower who was there begins again.
PUT_FLOOR: Final = "UPDATE feed SET floor_seq = coalesce((SELECT min(seq) - 1 FROM events), 0)"
# The log of TO is not where it was last open, even if both are files of one host.
MOVE_LOG: Final = "UPDATE tlog_epochs SET place = 'copied'"
# The refusal of a target that other processes still write to after a few seconds.
OTHERS_WRITE: Final = "another process is writing to TO; stop it first"
# The tables whose listings turn bounds on the time into bounds on `seq` (`scopes`).
_LISTED_BY_TIME: Final = {"triggers", "intents", "runs"}


class RowRefused(Exception):
    """A row that TO refuses: its index in the batch (None if unknown), and the reason."""

    def __init__(self, index: int | None, reason: str) -> None:
        super().__init__(index, reason)
        self.index = index
        self.reason = reason


class Side(Protocol):
    """One of the two databases. Every method raises `DatabaseUnavailable` when it does not answer."""

    @property
    def engine(self) -> str:
        """The name of the folder of its migrations."""
        ...

    async def ledger(self) -> dict[str, str]:
        """The applied migrations, name to hash."""
        ...

    async def columns(self, table: str) -> list[str]:
        """The names of a table's columns; empty if there is no such table."""
        ...

    async def count(self, table: str) -> int:
        """The number of rows of a table."""
        ...

    async def epoch(self) -> Row | None:
        """The number of the epoch, and how many epochs came before it; None if the row is missing."""
        ...


class Source(Side, Protocol):
    """The database to read, in one snapshot."""

    def rows(self, table: Table, columns: Sequence[str]) -> AsyncGenerator[list[Row]]:
        """All rows in the order of their key, in batches of `ROWS_PER_BATCH`. Raises `ValueError` for damage."""
        ...

    async def has_changed(self) -> bool:
        """End the snapshot; whether anything was written since it began."""
        ...


class Target(Side, Protocol):
    """The database to fill, in one transaction that locks out other writers."""

    async def has_numbered(self) -> bool:
        """Whether the database, which is empty now, ever numbered a row."""
        ...

    async def put_epoch(self, number: int, renewals: int) -> None:
        """Set the epoch to `number`, after `renewals` others."""
        ...

    async def add(self, table: str, columns: Sequence[str], rows: list[Row]) -> None:
        """Add rows. Raises `RowRefused`, after which the transaction must end."""
        ...

    async def commit(self, times_differ_ms: int) -> None:
        """Commit all rows. New rows get higher numbers.

        `times_differ_ms` is how far the time of a row may be ahead of the time of a later row.
        """
        ...


async def require_level(side: Side, name: str) -> None:
    """Raise `ValueError` unless `side` has exactly the migrations of this release."""
    known, applied = migrations(side.engine), await side.ledger()
    if absent := [migration.name for migration in missing(known, applied)]:
        raise ValueError(f"{name} lacks migrations, which `muniment migrate` applies: {', '.join(absent)}")
    if newer := sorted(applied.keys() - {migration.name for migration in known}):
        raise ValueError(f"{name} has migrations that this release does not know: {', '.join(newer)}")


async def require_empty(side: Side) -> None:
    """Raise `ValueError` when any of `TABLES` has a row. The schema may be of any release.

    Raises `AnotherRevision` for one that this release will not bring to its own.
    """
    missing(migrations(side.engine), await side.ledger())
    if held := [each.name for each in TABLES if await side.columns(each.name) and await side.count(each.name)]:
        raise ValueError(f"TO holds a registry: there are rows in {', '.join(held)}")


async def copy_epoch(source: Source, target: Target, number: int) -> bool:
    """Copy the epoch of `source` to `target`, which has no rows; whether a new epoch began instead.

    If `target` was a registry before, clients may still have its cursors, so the epoch `number` begins.
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
    """The number of rows of each table."""
    return {table.name: await source.count(table.name) for table in TABLES}


async def copy_rows(source: Source, target: Target, on_progress: Callable[[int], None]) -> int:
    """Copy every row of every table; `on_progress` gets the size of each batch. Returns `times_differ_ms` for `commit`.

    Raises `ValueError` with the table and the key of a row that cannot be read or is refused.
    """
    differ_ms = 0
    for table in TABLES:
        columns, order = await source.columns(table.name), _Order()
        at = columns.index("created_at_ms") if table.name in _LISTED_BY_TIME else None
        async for rows in source.rows(table, columns):
            try:
                await target.add(table.name, columns, rows)
            except RowRefused as refusal:
                raise ValueError(_refusal_text(table, columns, rows, refusal)) from refusal
            if at is not None:
                order.see(rows, at)
            on_progress(len(rows))
            await asyncio.sleep(0)  # SQLite never suspends; without this Ctrl-C would wait for the end
        differ_ms = max(differ_ms, order.differ_ms)
    return differ_ms


async def require_counts(target: Target, counts: dict[str, int]) -> None:
    """Raise `ValueError` unless each table of `target` has its number of rows in `counts`."""
    for name, count in counts.items():
        if (held := await target.count(name)) != count:
            raise ValueError(f"{name}: FROM has {count} rows, but TO got {held}; TO was rolled back")


@dataclass(slots=True)
class _Order:
    """How far times break the order of rows; zero for rows that one writer numbered."""

    newest_ms: int = 0
    differ_ms: int = 0

    def see(self, rows: list[Row], at: int) -> None:
        for row in rows:
            self.newest_ms = max(self.newest_ms, row[at])
            self.differ_ms = max(self.differ_ms, self.newest_ms - row[at])


def _refusal_text(table: Table, columns: Sequence[str], rows: list[Row], refusal: RowRefused) -> str:
    if refusal.index is None:
        return f"{table.name}: TO refuses a row of FROM: {refusal.reason}; TO was rolled back"
    row = rows[refusal.index]
    key = named(table, [row[columns.index(column)] for column in table.key])
    return f"{key}: TO refuses this row of FROM: {refusal.reason}; TO was rolled back"


def named(table: Table, key: Sequence[object]) -> str:
    """The name of a row in messages: its table and key."""
    shown = (f"{name} {_shown(value)}" for name, value in zip(table.key, key, strict=True))
    return f"{table.name}, {', '.join(shown)}"


def _shown(value: object) -> str:
    return f"0x{value.hex()}" if isinstance(value, bytes) else repr(value)
