"""The cursors of an epoch: for each kind of fact, the last number in its table that the tree has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, LiteralString

from muniment.functions import store as functions
from muniment.tlog.fields import SIZE_MAX
from muniment.tlog.sequencing import runs, store
from muniment.tlog.sequencing.facts import COUNT
from muniment.tlog.sequencing.store import DEACTIVATION, FUNCTION, TRIGGER
from muniment.triggers import order as triggers

if TYPE_CHECKING:
    from muniment.storage.database import Reader
    from muniment.tlog.sequencing.store import Epoch

_NTH: Final[dict[int, LiteralString]] = {
    FUNCTION: functions.NTH_JOINED, TRIGGER: triggers.NTH_REGISTERED, DEACTIVATION: triggers.NTH_ENDED,
}  # fmt: skip
_NAMES: Final = {FUNCTION: "functions", TRIGGER: "triggers", DEACTIVATION: "deactivations"}


async def check_cursors(database: Reader, epoch: Epoch) -> None:
    """Check that each cursor is where the last run of its kind ends. Raises `ValueError`.

    From a cursor that was damaged, facts would be left out of the log, or come into it twice.
    """
    begun = await _begun(database, epoch)
    for kind, after in epoch.after.items():
        run = await runs.last(database, epoch.epoch, kind, SIZE_MAX)
        if run is None:
            is_right = after == begun[kind]
        else:
            is_right = await COUNT[kind](database, run.first_seq, min(after, SIZE_MAX - 1) + 1) == run.count
        if not is_right:
            raise ValueError(f"the log does not go on with the {_NAMES[kind]} behind its last entries")


async def signed_cursors(database: Reader, epoch: Epoch, size: int) -> dict[int, int]:
    """The cursors of the first `size` entries of an epoch: those behind were never signed, and nobody can prove them.

    Where its runs are damaged, so that they do not have all facts up to there, those with which the epoch began: a fact
    in two epochs does no harm, and one in none does.
    """
    found = await _begun(database, epoch)
    for kind, begun in found.items():
        run = await runs.last(database, epoch.epoch, kind, size)
        if run is None:
            continue
        signed = min(run.count, size - run.first_index)
        count = await runs.count_before(database, epoch.epoch, kind, run.first_index) + signed
        rows = await database.fetch(_NTH[kind], (run.first_seq, max(signed - 1, 0)))
        if rows and await COUNT[kind](database, begun + 1, rows[0][0] + 1) == count:
            found[kind] = rows[0][0]
    return found


async def _begun(database: Reader, epoch: Epoch) -> dict[int, int]:
    """The cursors with which an epoch began."""
    before = await store.epoch_before(database, epoch.epoch)
    return before.after if before else dict.fromkeys(_NAMES, 0)
