"""The runs of the log: which facts of a table are where in the tree, for as many as follow each other in both."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from muniment.storage.database import Reader, Transaction

_RUN_MAX: Final = 256


class Run(msgspec.Struct, frozen=True):
    """`count` facts of a kind that follow each other in their table and in the tree."""

    kind: int
    first_seq: int
    first_index: int
    count: int


async def add(transaction: Transaction, epoch: int, run: Run) -> None:
    """Add a run, or make the last one longer if it ends where this one begins."""
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


async def find(database: Reader, epoch: int, kind: int, seq: int) -> Run | None:
    """The run that may have the fact with this number; None: it is not in the tree."""
    rows = await database.fetch(
        """SELECT kind, first_seq, first_index, count FROM tlog_runs
           WHERE epoch = ? AND kind = ? AND first_seq <= ? ORDER BY first_seq DESC LIMIT 1""",
        (epoch, kind, seq),
    )
    return Run(*rows[0]) if rows else None


async def last(database: Reader, epoch: int, kind: int, before_index: int) -> Run | None:
    """The last run of a kind that begins before the leaf `before_index`."""
    rows = await database.fetch(
        """SELECT kind, first_seq, first_index, count FROM tlog_runs
           WHERE epoch = ? AND kind = ? AND first_index < ? ORDER BY first_seq DESC LIMIT 1""",
        (epoch, kind, before_index),
    )
    return Run(*rows[0]) if rows else None


async def count_before(database: Reader, epoch: int, kind: int, index: int) -> int:
    """How many facts of a kind are in the runs that begin before the leaf `index`."""
    sql = "SELECT count FROM tlog_runs WHERE epoch = ? AND kind = ? AND first_index < ?"
    return sum(count for (count,) in await database.fetch(sql, (epoch, kind, index)))
