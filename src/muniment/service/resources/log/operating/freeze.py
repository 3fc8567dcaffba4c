"""Freeze a log, and resume it after a check against every checkpoint that was shown to others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from muniment.protocol.log.checkpoints import Checkpoint, open_checkpoint
from muniment.protocol.log.entries import CloseFact, parse_entry
from muniment.protocol.log.keys import parse_verifier_key
from muniment.protocol.log.notes import parse_note
from muniment.protocol.log.tiles import ENTRIES, WIDTH, split_entries, unpacked
from muniment.service.resources.log.sequencing import opening, store
from muniment.service.resources.log.sequencing.checking import check
from muniment.service.resources.log.sequencing.mark import raise_mark, read_mark
from muniment.service.resources.log.witnessing.policies import read_policy
from muniment.service.resources.log.witnessing.witness_client import known_checkpoints

if TYPE_CHECKING:
    from muniment.protocol.log.types import State
    from muniment.service.context import Context
    from muniment.service.resources.log.sequencing.mark import Mark
    from muniment.service.resources.log.sequencing.store import Checked, Epoch
    from muniment.service.storage.database import Reader


async def require_epoch(database: Reader) -> Epoch:
    """The newest epoch. Raises `ValueError` when the log has never begun."""
    if (epoch := await store.newest(database)) is None:
        raise ValueError("the log has not begun: the service begins it when it has MUNIMENT_TLOG_NAME and a key")
    return epoch


async def freeze(context: Context) -> Epoch:
    """Stop the log: it neither grows nor is signed. Raises `ValueError` unless it is open."""
    epoch = await require_epoch(context.database)
    if epoch.state != "open":
        raise ValueError(f"the log is {epoch.state}; only an open log is frozen")
    await context.database.write(lambda tx: store.freeze(tx, epoch, "an operator has frozen it"))
    return await require_epoch(context.database)


async def resume(context: Context, seen: list[bytes], *, is_nothing_published: bool) -> Epoch:
    """Resume a log that is frozen or halted, or that would be halted here.

    The stored tree must be complete, and must begin with every known checkpoint: the mark of this host, those of the
    witnesses, and the notes in `seen`. Without any, `is_nothing_published` must confirm that no checkpoint was shown
    that the database lacks. Raises `ValueError` with the reason and the next step, and `OSError`.
    """
    epoch = await require_epoch(context.database)
    mark = read_mark(context.settings.data_dir)
    place = await opening.place_of(context, mark)
    if epoch.state == "closed":
        raise ValueError("the newest epoch is closed; `muniment tlog begin` begins the next one")
    if epoch.state in {"open", "closing"} and not await opening.find_halt_reason(context, epoch, mark, place):
        raise ValueError(f"the log is {epoch.state}: there is nothing to resume")
    known = await _known(context, epoch, mark, seen)
    if not known and not is_nothing_published:
        raise ValueError(
            "this host has no mark of the log, so the checkpoints that were shown to others are unknown: give one "
            "with --seen FILE, or confirm with --nothing-published-since that no later one was shown"
        )
    try:
        checked = await check(context, epoch, since=0, known=known)
    except ValueError as error:
        raise ValueError(f"{error}. `muniment tlog begin` begins an epoch that announces a loss") from None
    last = parse_entry(await last_entry(context.database, checked))
    state: State = "closing" if isinstance(last, CloseFact) else "open"
    await context.database.write(lambda tx: store.resume(tx, checked, state, place))
    if epoch.note is not None:
        raise_mark(context.settings.data_dir, epoch.note)
    return await require_epoch(context.database)


async def _known(context: Context, epoch: Epoch, mark: Mark | None, seen: list[bytes]) -> list[Checkpoint]:
    """The checkpoints of this epoch that are known outside of the database. Raises `ValueError`."""
    key = parse_verifier_key(epoch.vkey)
    known = [open_checkpoint(parse_note(data), key) for data in seen]
    if policy := read_policy(context.settings):
        of_witnesses = await known_checkpoints(policy, epoch.origin, key)
        known += [each.checkpoint for each in of_witnesses if each.checkpoint]
    if mark and (signed := mark.checkpoint):
        if signed.origin == epoch.origin:
            known.append(signed)
        elif not await store.has_origin(context.database, signed.origin):
            raise ValueError(
                f"this host has signed {signed.origin}, which the database lacks: it lost an epoch. "
                "`muniment tlog begin` begins the next one"
            )
    return known


async def last_entry(database: Reader, checked: Checked) -> bytes:
    """The bytes of the last entry. Raises `ValueError`."""
    if checked.edge.tail:
        return checked.edge.tail[-1]
    n = checked.epoch.size // WIDTH - 1
    return split_entries(unpacked(await store.read_tile(database, checked.epoch.epoch, ENTRIES, n)))[-1]
