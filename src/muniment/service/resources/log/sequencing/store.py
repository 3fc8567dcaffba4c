"""Rows of the log. A batch is stored by compare-and-swap on the size of its epoch, so processes need no lock."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, LiteralString

import msgspec

from muniment.protocol.log.growth import Edge, Grown, StoredTile
from muniment.protocol.log.keys import COSIGNATURE, parse_verifier_key
from muniment.protocol.log.notes import parse_note, verified
from muniment.protocol.log.tiles import HEIGHT, WIDTH
from muniment.protocol.log.types import State
from muniment.service.storage.sql import placeholders

if TYPE_CHECKING:
    from muniment.service.storage.database import Reader, Transaction

FUNCTION: Final = 1
TRIGGER: Final = 2
DEACTIVATION: Final = 3
_RUN_MAX: Final = 256
_AFTER: Final[dict[int, LiteralString]] = {
    FUNCTION: "after_function",
    TRIGGER: "after_trigger",
    DEACTIVATION: "after_deactivation",
}
_COLUMNS: Final = (
    "epoch, origin, vkeys, state, why, place, size, root, after_function, after_trigger, after_deactivation, "
    "old_function, old_trigger, old_deactivation, backfilled, note, note_size, opened_at_ms"
)


class Epoch(msgspec.Struct, frozen=True):
    """A row of `tlog_epochs`: docs/develop/database.md has the meaning of each column."""

    epoch: int
    origin: str
    vkeys: str
    state: State
    why: str | None
    place: str
    size: int
    root: bytes
    after_function: int
    after_trigger: int
    after_deactivation: int
    old_function: int
    old_trigger: int
    old_deactivation: int
    backfilled: int | None
    note: str | None
    note_size: int
    opened_at_ms: int

    @property
    def vkey(self) -> str:
        """The key that verifies checkpoints of the epoch."""
        return self.vkeys.partition("\n")[0]

    @property
    def signed_at_ms(self) -> int | None:
        """Time of the last checkpoint in milliseconds since 1970; None without a checkpoint or with a damaged one."""
        try:
            keys = [parse_verifier_key(each) for each in self.vkeys.split("\n")]
            times = verified(parse_note((self.note or "").encode()), keys)
        except ValueError:
            return None
        return max((1000 * at_s for key, at_s in times.items() if key.kind == COSIGNATURE), default=None)

    @property
    def after(self) -> dict[int, int]:
        """The last number in the tree, for each kind of fact."""
        return {FUNCTION: self.after_function, TRIGGER: self.after_trigger, DEACTIVATION: self.after_deactivation}

    @property
    def old(self) -> dict[int, int]:
        """The last number when the epoch began, for each kind of fact."""
        return {FUNCTION: self.old_function, TRIGGER: self.old_trigger, DEACTIVATION: self.old_deactivation}


class Run(msgspec.Struct, frozen=True):
    """`count` facts of a kind that follow each other in their table and in the tree."""

    kind: int
    first_seq: int
    first_index: int
    count: int


class Overtaken(Exception):
    """Another process has changed the epoch: the transaction is rolled back."""


async def newest(database: Reader) -> Epoch | None:
    """The newest epoch, or None before the log has begun."""
    rows = await database.fetch(f"SELECT {_COLUMNS} FROM tlog_epochs ORDER BY epoch DESC LIMIT 1")
    return Epoch(*rows[0]) if rows else None


async def all_epochs(database: Reader) -> list[Epoch]:
    """All epochs, the newest first."""
    rows = await database.fetch(f"SELECT {_COLUMNS} FROM tlog_epochs ORDER BY epoch DESC")
    return [Epoch(*row) for row in rows]


async def find_epoch(database: Reader, number: int) -> Epoch | None:
    """The epoch with this number."""
    rows = await database.fetch(f"SELECT {_COLUMNS} FROM tlog_epochs WHERE epoch = ?", (number,))
    return Epoch(*rows[0]) if rows else None


async def epoch_before(database: Reader, number: int) -> Epoch | None:
    """The last epoch before this number."""
    rows = await database.fetch(
        f"SELECT {_COLUMNS} FROM tlog_epochs WHERE epoch < ? ORDER BY epoch DESC LIMIT 1", (number,)
    )
    return Epoch(*rows[0]) if rows else None


async def epoch_with(database: Reader, kind: int, seq: int) -> Epoch | None:
    """The epoch whose tree has the fact with this number, if any."""
    rows = await database.fetch(
        f"SELECT {_COLUMNS} FROM tlog_epochs WHERE {_AFTER[kind]} >= ? ORDER BY epoch LIMIT 1",
        (seq,),
    )
    return Epoch(*rows[0]) if rows else None


async def has_origin(database: Reader, origin: str) -> bool:
    """Whether an epoch has this origin."""
    return bool(await database.fetch("SELECT 1 FROM tlog_epochs WHERE origin = ?", (origin,)))


async def begin(transaction: Transaction, new: Epoch, edge: Edge) -> None:
    """Store a new epoch with the entries of `edge`, and close the previous one at its cursors.

    Raises `Overtaken` if it exists.
    """
    row = msgspec.structs.astuple(new)
    added = await transaction.execute(
        f"INSERT INTO tlog_epochs ({_COLUMNS}) VALUES ({placeholders(len(row))}) ON CONFLICT DO NOTHING",
        row,
    )
    if not added:
        raise Overtaken
    await transaction.execute(
        """UPDATE tlog_epochs SET state = 'closed', after_function = ?, after_trigger = ?, after_deactivation = ?
           WHERE epoch < ? AND state <> 'closed'""",
        (new.after_function, new.after_trigger, new.after_deactivation, new.epoch),
    )
    await _add_tail(transaction, new.epoch, 0, edge.tail)


async def read_edge(database: Reader, epoch: Epoch) -> Edge:
    """The edge of the tree. Raises `ValueError` for missing entries or tiles."""
    rows = await database.fetch(
        "SELECT leaf_index, entry FROM tlog_tail WHERE epoch = ? AND leaf_index < ? ORDER BY leaf_index",
        (epoch.epoch, epoch.size),
    )
    first = epoch.size - epoch.size % WIDTH
    if [index for index, _ in rows] != list(range(first, epoch.size)):
        raise ValueError(f"the log lacks the entries {first} to {epoch.size}")
    tiles, level, count = dict[int, bytes](), 1, epoch.size >> HEIGHT
    while count:
        if count % WIDTH:
            tiles[level] = await read_tile(database, epoch.epoch, level, count // WIDTH)
        level, count = level + 1, count >> HEIGHT
    cut = {level: data[: 32 * ((epoch.size >> HEIGHT * level) % WIDTH)] for level, data in tiles.items()}
    return Edge(epoch.size, tuple(entry for _, entry in rows), cut)


async def find_tile(database: Reader, epoch: int, level: int, n: int) -> bytes | None:
    """A stored tile or bundle. Bundles and tiles of level 0 are stored when they are full."""
    rows = await database.fetch(
        "SELECT data FROM tlog_tiles WHERE epoch = ? AND level = ? AND n = ?", (epoch, level, n)
    )
    return rows[0][0] if rows else None


async def read_tile(database: Reader, epoch: int, level: int, n: int) -> bytes:
    """A stored tile or bundle. Raises `ValueError` if it is missing."""
    if (data := await find_tile(database, epoch, level, n)) is None:
        raise ValueError(f"the log lacks tile {level}/{n}")
    return data


async def read_tail(database: Reader, epoch: int, first: int, count: int) -> list[bytes]:
    """At most `count` entries from the leaf `first` on; empty if the bundle of `first` is full."""
    rows = await database.fetch(
        "SELECT leaf_index, entry FROM tlog_tail WHERE epoch = ? AND leaf_index >= ? ORDER BY leaf_index LIMIT ?",
        (epoch, first, count),
    )
    return [entry for _, entry in rows] if rows and rows[0][0] == first else []


async def append(transaction: Transaction, epoch: Epoch, grown: Grown, new: Epoch, added: list[Run]) -> None:
    """Store the grown tree, and `new` as the row of its epoch. Raises `Overtaken`."""
    changed = await transaction.execute(
        """UPDATE tlog_epochs SET size = ?, root = ?, after_function = ?, after_trigger = ?, after_deactivation = ?,
           backfilled = ? WHERE epoch = ? AND state = 'open' AND size = ?""",
        (
            new.size, new.root, new.after_function, new.after_trigger, new.after_deactivation,
            new.backfilled, epoch.epoch, epoch.size,
        ),
    )  # fmt: skip
    if changed != 1:
        raise Overtaken
    if grown.edge.tail:
        first = epoch.size % WIDTH
        await _add_tail(transaction, epoch.epoch, epoch.size, grown.edge.tail[first:])
    else:
        await transaction.execute("DELETE FROM tlog_tail WHERE epoch = ?", (epoch.epoch,))
    for tile in grown.tiles:
        await _put_tile(transaction, epoch.epoch, tile)
    for run in added:
        await _add_run(transaction, epoch.epoch, run)


async def _add_tail(transaction: Transaction, epoch: int, first: int, entries: tuple[bytes, ...]) -> None:
    for index, entry in enumerate(entries, first):
        await transaction.execute(
            "INSERT INTO tlog_tail (epoch, leaf_index, entry) VALUES (?, ?, ?)", (epoch, index, entry)
        )


async def _put_tile(transaction: Transaction, epoch: int, tile: StoredTile) -> None:
    await transaction.execute(
        """INSERT INTO tlog_tiles (epoch, level, n, data) VALUES (?, ?, ?, ?)
           ON CONFLICT (epoch, level, n) DO UPDATE SET data = excluded.data""",
        (epoch, tile.level, tile.n, tile.data),
    )


async def publish(transaction: Transaction, epoch: Epoch, note: str, size: int) -> bool:
    """Publish a signed checkpoint. Returns whether the epoch still grows and has the note of `epoch`.

    Another process may have published a later one while witnesses were asked.
    """
    shown = await transaction.execute(
        """UPDATE tlog_epochs SET note = ?, note_size = ?
           WHERE epoch = ? AND state IN ('open', 'closing') AND note_size <= ? AND coalesce(note, '') = ?""",
        (note, size, epoch.epoch, size, epoch.note or ""),
    )
    return shown == 1


async def halt(transaction: Transaction, epoch: Epoch, why: str) -> None:
    """Halt the log; its last checkpoint stays published."""
    await transaction.execute(
        "UPDATE tlog_epochs SET state = 'halted', why = ? WHERE epoch = ? AND state IN ('open', 'closing')",
        (why, epoch.epoch),
    )


async def freeze(transaction: Transaction, epoch: Epoch, why: str) -> bool:
    """Freeze an open log for an operator. Returns whether it was open."""
    frozen = await transaction.execute(
        "UPDATE tlog_epochs SET state = 'frozen', why = ? WHERE epoch = ? AND state = 'open'", (why, epoch.epoch)
    )
    return frozen == 1


async def resume(transaction: Transaction, epoch: Epoch, state: State, place: str) -> None:
    """Resume a stopped log at `place`. Raises `Overtaken` if it has changed meanwhile."""
    resumed = await transaction.execute(
        "UPDATE tlog_epochs SET state = ?, why = NULL, place = ? WHERE epoch = ? AND state = ? AND size = ?",
        (state, place, epoch.epoch, epoch.state, epoch.size),
    )
    if resumed != 1:
        raise Overtaken


async def begin_closing(transaction: Transaction, epoch: Epoch) -> None:
    """Add no further entries; the tree is still signed."""
    await transaction.execute("UPDATE tlog_epochs SET state = 'closing' WHERE epoch = ?", (epoch.epoch,))


async def settled_before(database: Reader) -> int:
    """The number before which every row is final."""
    if not database.visible_before:
        return 2**63 - 1
    ((before,),) = await database.fetch(f"SELECT {database.visible_before}")
    return before


async def _add_run(transaction: Transaction, epoch: int, run: Run) -> None:
    """Add a run, or extend the last one if this one continues it."""
    longer = await transaction.execute(
        """UPDATE tlog_runs SET count = count + ? WHERE epoch = ? AND kind = ? AND first_index + count = ?
           AND count + ? <= ? AND first_seq = (SELECT max(first_seq) FROM tlog_runs WHERE epoch = ? AND kind = ?)""",
        (run.count, epoch, run.kind, run.first_index, run.count, _RUN_MAX, epoch, run.kind),
    )
    if not longer:
        await transaction.execute(
            "INSERT INTO tlog_runs (epoch, kind, first_seq, first_index, count) VALUES (?, ?, ?, ?, ?)",
            (epoch, *msgspec.structs.astuple(run)),
        )


async def find_run(database: Reader, epoch: int, kind: int, seq: int) -> Run | None:
    """The last run that begins at or before this number, if any."""
    rows = await database.fetch(
        """SELECT kind, first_seq, first_index, count FROM tlog_runs
           WHERE epoch = ? AND kind = ? AND first_seq <= ? ORDER BY first_seq DESC LIMIT 1""",
        (epoch, kind, seq),
    )
    return Run(*rows[0]) if rows else None


async def last_run(database: Reader, epoch: int, kind: int, before_index: int) -> Run | None:
    """The last run of a kind that begins before the leaf `before_index`."""
    rows = await database.fetch(
        """SELECT kind, first_seq, first_index, count FROM tlog_runs
           WHERE epoch = ? AND kind = ? AND first_index < ? ORDER BY first_seq DESC LIMIT 1""",
        (epoch, kind, before_index),
    )
    return Run(*rows[0]) if rows else None


async def count_runs_before(database: Reader, epoch: int, kind: int, index: int) -> int:
    """The number of facts of a kind in the runs that begin before the leaf `index`."""
    sql = "SELECT count FROM tlog_runs WHERE epoch = ? AND kind = ? AND first_index < ?"
    return sum(count for (count,) in await database.fetch(sql, (epoch, kind, index)))
