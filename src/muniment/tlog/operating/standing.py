"""Stop a log, and let it go on when nobody was shown another tree than ours."""

from __future__ import annotations

from typing import TYPE_CHECKING

from muniment.tlog.checkpoints import Checkpoint, open_checkpoint, parse_checkpoint
from muniment.tlog.entries import CloseFact, parse_entry
from muniment.tlog.keys import parse_verifier_key
from muniment.tlog.notes import parse_note
from muniment.tlog.sequencing import opening, store
from muniment.tlog.sequencing.checking import check_beginning, check_stored
from muniment.tlog.sequencing.mark import raise_mark, read_mark
from muniment.tlog.tiles import ENTRIES, WIDTH, split_entries, unpacked
from muniment.tlog.witnessing.knowing import known_checkpoints
from muniment.tlog.witnessing.policies import read_policy

if TYPE_CHECKING:
    from muniment.context import Context
    from muniment.storage.database import Reader
    from muniment.tlog.sequencing.mark import Mark
    from muniment.tlog.sequencing.store import Epoch
    from muniment.tlog.types import State


async def require_epoch(database: Reader) -> Epoch:
    """The newest epoch. Raises `ValueError` when the log has never begun."""
    if (epoch := await store.newest(database)) is None:
        raise ValueError("the log has not begun: the service begins it, when it has a key")
    return epoch


async def freeze(context: Context) -> Epoch:
    """Stop the log: nothing is added and nothing is signed. Raises `ValueError` unless it is open."""
    epoch = await require_epoch(context.database)
    if not await context.database.write(lambda tx: store.freeze(tx, epoch, "an operator has frozen it")):
        raise ValueError(f"the log is {epoch.state}; only an open log is frozen")
    return await require_epoch(context.database)


async def resume(context: Context, seen: list[bytes], *, is_nothing_published: bool) -> Epoch:
    """Let a log go on that is frozen or halted, or that would be halted here.

    The stored tree must be whole, and must begin with every checkpoint that anybody has seen: the mark of this host,
    those of the witnesses, and the notes in `seen`. Where there is none, `is_nothing_published` says that nobody has
    seen any that the database lacks. Raises `ValueError` that says what is in the way, and `OSError`.
    """
    epoch = await require_epoch(context.database)
    mark = read_mark(context.settings.data_dir)
    place = await opening.place_of(context, mark)
    if epoch.state == "closed":
        raise ValueError("the newest epoch is closed; `muniment tlog begin` begins the next one")
    if epoch.state in {"open", "closing"} and not await opening.find_brake(context, epoch, mark, place):
        raise ValueError(f"the log is {epoch.state}: nothing stops it")
    known = await _known(context, epoch, mark, seen)
    if not known and not is_nothing_published:
        raise ValueError(
            "this host has no mark of the log, so nothing tells what was shown to others: give a checkpoint that "
            "somebody has seen with --seen, or say --nothing-published-since"
        )
    for each in known:
        await _check_includes(context.database, epoch, each)
    await check_stored(context.database, epoch, 0)
    state: State = "closing" if await _is_closing(context.database, epoch) else "open"
    await context.database.write(lambda tx: store.resume(tx, epoch, state, place))
    if epoch.note is not None:
        raise_mark(context.settings.data_dir, epoch.note)
    return await require_epoch(context.database)


async def _known(context: Context, epoch: Epoch, mark: Mark | None, seen: list[bytes]) -> list[Checkpoint]:
    """The checkpoints of this epoch that somebody outside of the database has. Raises `ValueError`."""
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
                f"this host has signed {signed.origin}, which the database does not know: it lost an epoch, and "
                "`muniment tlog begin` begins another one"
            )
    return known


async def _check_includes(database: Reader, epoch: Epoch, signed: Checkpoint) -> None:
    """Check that our tree begins with the one that was signed. Raises `ValueError`."""
    if signed.size > epoch.size:
        raise ValueError(
            f"a tree of {signed.size} entries was signed, and the database has {epoch.size}: the others are lost here. "
            "`muniment tlog begin` begins an epoch that says so"
        )
    await check_beginning(database, epoch, signed)
    if epoch.note is not None:
        await check_beginning(database, epoch, parse_checkpoint(parse_note(epoch.note.encode()).text))


async def _is_closing(database: Reader, epoch: Epoch) -> bool:
    """Whether the last entry closes the epoch."""
    return isinstance(parse_entry(await last_entry(database, epoch)), CloseFact)


async def last_entry(database: Reader, epoch: Epoch) -> bytes:
    """The bytes of the last entry. Raises `ValueError`."""
    edge = await store.read_edge(database, epoch)
    if edge.tail:
        return edge.tail[-1]
    return split_entries(unpacked(await store.read_tile(database, epoch.epoch, ENTRIES, epoch.size // WIDTH - 1)))[-1]
