"""Rows of the log. A batch is stored by compare-and-swap on the size of its epoch, so processes need no lock."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, LiteralString, NamedTuple

import msgspec

from muniment.protocol.log.notes import COSIGNATURE, parse_note, parse_verifier_key, verified
from muniment.protocol.log.tiles import HEIGHT, WIDTH, Edge, Grown, StoredTile
from muniment.protocol.log.types import State
from muniment.service.storage.sql import placeholders

if TYPE_CHECKING:
    from muniment.service.storage.database import Reader, Transaction


FUNCTION: Final = 1
TRIGGER: Final = 2
DEACTIVATION: Final = 3
KINDS: Final[tuple[int, ...]] = (FUNCTION, TRIGGER, DEACTIVATION)
_RUN_MAX: Final = 256
_COLUMNS: Final = "epoch, origin, vkeys, state, why, place, size, root, backfilled, note, note_size, opened_at_ms"
# Every change of the state of an epoch, by step. docs/develop/database.md draws them; a test compares both.
STEPS: Final[Mapping[str, frozenset[tuple[State, State]]]] = {
    "append": frozenset({("open", "open")}),
    "publish": frozenset({("open", "open"), ("closing", "closing")}),
    "begin_closing": frozenset({("open", "closing")}),
    "freeze": frozenset({("open", "frozen")}),
    "halt": frozenset({("open", "halted"), ("closing", "halted")}),
    # A log that is open, and would be halted here: it has moved, and is checked.
    "resume": frozenset(
        {("frozen", "open"), ("halted", "open"), ("halted", "closing"), ("open", "open"), ("closing", "closing")}
    ),
    # Closes the epoch before the new one, which is open.
    "begin": frozenset({("open", "closed"), ("closing", "closed"), ("frozen", "closed"), ("halted", "closed")}),
}


class Epoch(msgspec.Struct, frozen=True):
    """A row of `tlog_epochs` and its rows of `tlog_cursors`: docs/develop/database.md explains the columns.

    `after` and `backfill_until` have a number for each kind of fact. A cursor that is lost is -1, which no epoch has.
    """

    epoch: int
    origin: str
    vkeys: str
    state: State
    why: str | None
    place: str
    size: int
    root: bytes
    backfilled: int | None
    note: str | None
    note_size: int
    opened_at_ms: int
    after: Mapping[int, int]
    backfill_until: Mapping[int, int]

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


class Checked(NamedTuple):
    """An epoch, and the edge of its tree, which were compared with all that is stored and was signed.

    `checking.check` makes it, and `append` makes the next one. Only a checked epoch grows, is shown, or is resumed.
    """

    epoch: Epoch
    edge: Edge


class Run(msgspec.Struct, frozen=True):
    """`count` facts of a kind that follow each other in their table and in the tree."""

    kind: int
    first_seq: int
    first_index: int
    count: int


class Batch(NamedTuple):
    """An epoch after a batch: its tree, its cursors, its `backfilled`, and the runs that are new."""

    grown: Grown
    after: Mapping[int, int]
    backfilled: int | None
    runs: list[Run]


class Overtaken(Exception):
    """Another process has changed the epoch: the transaction is rolled back."""


async def newest(database: Reader) -> Epoch | None:
    """The newest epoch, or None before the log has begun."""
    return await _first(database, "WHERE epoch = (SELECT max(epoch) FROM tlog_epochs)")


async def all_epochs(database: Reader) -> list[Epoch]:
    """All epochs, the newest first."""
    return await _read(database, "")


async def find_epoch(database: Reader, number: int) -> Epoch | None:
    """The epoch with this number."""
    return await _first(database, "WHERE epoch = ?", number)


async def epoch_before(database: Reader, number: int) -> Epoch | None:
    """The last epoch before this number."""
    return await _first(database, "WHERE epoch = (SELECT max(epoch) FROM tlog_epochs WHERE epoch < ?)", number)


async def epoch_with(database: Reader, kind: int, seq: int) -> Epoch | None:
    """The epoch whose tree has the fact with this number, if any."""
    where: LiteralString = "WHERE epoch = (SELECT min(epoch) FROM tlog_cursors WHERE kind = ? AND after >= ?)"
    return await _first(database, where, kind, seq)


async def _first(database: Reader, where: LiteralString, *values: int) -> Epoch | None:
    found = await _read(database, where, *values)
    return found[0] if found else None


async def _read(database: Reader, where: LiteralString, *values: int) -> list[Epoch]:
    """The epochs with this condition, the newest first. It is one statement, because the log may grow meanwhile."""
    rows = await database.fetch(
        f"""SELECT {_COLUMNS}, kind, after, backfill_until FROM tlog_epochs LEFT JOIN tlog_cursors USING (epoch)
            {where} ORDER BY epoch DESC""",
        values,
    )
    found, cursors = dict[int, tuple[Any, ...]](), dict[int, dict[int, tuple[int, int]]]()
    for *columns, kind, after, until in rows:
        found[columns[0]] = tuple(columns)
        cursors.setdefault(columns[0], dict.fromkeys(KINDS, (-1, 0)))[kind] = after, until
    return [
        Epoch(*columns, *({kind: cursors[number][kind][at] for kind in KINDS} for at in (0, 1)))
        for number, columns in found.items()
    ]


async def has_origin(database: Reader, origin: str) -> bool:
    """Whether an epoch has this origin."""
    return bool(await database.fetch("SELECT 1 FROM tlog_epochs WHERE origin = ?", (origin,)))


async def begin(transaction: Transaction, new: Epoch, edge: Edge) -> None:
    """Store a new epoch with the entries of `edge`, and close the previous one at its cursors.

    Raises `Overtaken` if it exists.
    """
    row = msgspec.structs.astuple(new)[:-2]
    added = await transaction.execute(
        f"INSERT INTO tlog_epochs ({_COLUMNS}) VALUES ({placeholders(len(row))}) ON CONFLICT DO NOTHING", row
    )
    if not added:
        raise Overtaken
    for kind, after in new.after.items():
        await transaction.execute(
            """INSERT INTO tlog_cursors (epoch, kind, after, backfill_until)
               SELECT epoch, ?, ?, ? FROM tlog_epochs WHERE epoch <= ? AND state <> 'closed'
               ON CONFLICT (epoch, kind) DO UPDATE SET after = excluded.after""",
            (kind, after, new.backfill_until[kind], new.epoch),
        )
    await transaction.execute(
        "UPDATE tlog_epochs SET state = 'closed' WHERE epoch < ? AND state <> 'closed'", (new.epoch,)
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


async def append(transaction: Transaction, checked: Checked, batch: Batch) -> Checked:
    """Store a batch. Returns the grown epoch. Raises `Overtaken`."""
    epoch, edge = checked.epoch, batch.grown.edge
    new: dict[LiteralString, object] = {"size": edge.size, "root": edge.root, "backfilled": batch.backfilled}
    await _change(transaction, "append", epoch, "open", new, "AND size = ?", epoch.size)
    for kind, after in batch.after.items():
        if after != epoch.after[kind]:
            await transaction.execute(
                "UPDATE tlog_cursors SET after = ? WHERE epoch = ? AND kind = ?", (after, epoch.epoch, kind)
            )
    if edge.tail:
        await _add_tail(transaction, epoch.epoch, epoch.size, edge.tail[len(checked.edge.tail) :])
    else:
        await transaction.execute("DELETE FROM tlog_tail WHERE epoch = ?", (epoch.epoch,))
    for tile in batch.grown.tiles:
        await _put_tile(transaction, epoch.epoch, tile)
    for run in batch.runs:
        await _add_run(transaction, epoch.epoch, run)
    grown = msgspec.structs.replace(
        epoch, size=edge.size, root=edge.root, backfilled=batch.backfilled, after=batch.after
    )
    return Checked(grown, edge)


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


async def publish(transaction: Transaction, checked: Checked, note: str) -> None:
    """Publish the signed checkpoint of an epoch, unless another process has published one meanwhile."""
    epoch = checked.epoch
    with suppress(Overtaken):
        await _change(
            transaction, "publish", epoch, epoch.state, {"note": note, "note_size": epoch.size},
            "AND note_size <= ? AND coalesce(note, '') = ?", epoch.size, epoch.note or "",
        )  # fmt: skip


async def halt(transaction: Transaction, epoch: Epoch, why: str) -> None:
    """Halt the log, unless another process has changed its state. Its last checkpoint stays published."""
    with suppress(Overtaken):
        await _change(transaction, "halt", epoch, "halted", {"why": why})


async def freeze(transaction: Transaction, epoch: Epoch, why: str) -> None:
    """Freeze an open log for an operator. Raises `Overtaken` unless it is open."""
    await _change(transaction, "freeze", epoch, "frozen", {"why": why})


async def resume(transaction: Transaction, checked: Checked, state: State, place: str) -> None:
    """Resume a stopped log at `place`. Raises `Overtaken` if it has changed meanwhile."""
    epoch = checked.epoch
    await _change(transaction, "resume", epoch, state, {"why": None, "place": place}, "AND size = ?", epoch.size)


async def begin_closing(transaction: Transaction, checked: Checked) -> None:
    """Add no further entries; the tree is still signed. Raises `Overtaken`."""
    await _change(transaction, "begin_closing", checked.epoch, "closing", {})


async def _change(
    transaction: Transaction, step: str, epoch: Epoch, state: State, new: dict[LiteralString, object],
    also: LiteralString = "", *values: object,
) -> None:  # fmt: skip
    """Bring an epoch into `state`, with new values of columns. Raises `Overtaken` where `STEPS` does not allow it.

    `also` is a further condition on the stored epoch, with its values.
    """
    if (epoch.state, state) not in STEPS[step]:
        raise Overtaken
    sets = ", ".join(f"{column} = ?" for column in ("state", *new))
    changed = await transaction.execute(
        f"UPDATE tlog_epochs SET {sets} WHERE epoch = ? AND state = ? {also}",
        (state, *new.values(), epoch.epoch, epoch.state, *values),
    )
    if changed != 1:
        raise Overtaken


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
