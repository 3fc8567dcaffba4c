"""Operator commands of the log: status, freeze, resume, begin, rotate.

A frozen log is resumed after a check against every checkpoint that was shown to others. The next epoch begins by
rotation, which the last entry announces, or after a loss.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from muniment.protocol.log.checkpoints import Checkpoint, open_checkpoint
from muniment.protocol.log.entries import CloseFact, parse_entry
from muniment.protocol.log.notes import keys_of_log, parse_note, parse_verifier_key
from muniment.protocol.log.tiles import ENTRIES, WIDTH, grow, split_entries, unpacked
from muniment.protocol.wire import Record, iso_time
from muniment.service.resources.log import opening, store
from muniment.service.resources.log.checking import check
from muniment.service.resources.log.facts import SOURCES
from muniment.service.resources.log.integrator import Integrator
from muniment.service.resources.log.mark import raise_mark, read_mark
from muniment.service.resources.log.store import Batch, Epoch
from muniment.service.resources.log.witnesses import known_checkpoints, read_policy

if TYPE_CHECKING:
    from muniment.protocol.log.notes import VerifierKey
    from muniment.protocol.log.types import State
    from muniment.service.context import Context
    from muniment.service.resources.log.mark import Mark
    from muniment.service.resources.log.store import Checked
    from muniment.service.storage.database import Reader, Transaction


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
            "this host does not know which checkpoints were published: give the newest with --seen FILE, or assert "
            "with --nothing-published-since that this database has them all"
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


_NO_KEY = "no secret of the log is at hand: set MUNIMENT_TLOG_KEY as the service has it"


async def begin(context: Context) -> Epoch:
    """Begin the next epoch after a loss: its first entry names the last signed tree that this host knows.

    The last entry of the previous epoch does not announce this, so followers report it. Raises `ValueError` for an open
    log without a reason to halt, and `OSError`.
    """
    before = await require_epoch(context.database)
    mark = read_mark(context.settings.data_dir)
    place = await opening.place_of(context, mark)
    if before.state in {"open", "closing"} and not await opening.find_halt_reason(context, before, mark, place):
        raise ValueError(
            f"the log is {before.state} and needs no new epoch. To change its key, use `muniment tlog rotate`, which "
            "followers accept"
        )
    new = await opening.begin_epoch(context, before, mark, place, "restored")
    if new is None:
        raise ValueError(_NO_KEY)
    return new


async def rotate(context: Context) -> Epoch:
    """Replace the key of the log: close its epoch with an entry that names the next key, then begin the next epoch.

    The next epoch has another secret, so a stolen one cannot sign it. Every step can be repeated after an interruption.
    Raises `ValueError` with the reason, and `OSError`.
    """
    epoch = await require_epoch(context.database)
    if fault := opening.name_fault(context.settings, epoch):
        raise ValueError(fault)
    secret = opening.next_secret_of(context)
    if keys_of_log(epoch.origin, secret)[0].verifier.text == epoch.vkey:  # it began, and was interrupted then
        opening.take_next_secret(context)
        return epoch
    key = keys_of_log(opening.origin_of(context, epoch.epoch + 1), secret)[0].verifier
    await _close(context, epoch, key)
    integrator = Integrator(context)
    try:
        await integrator.turn()
    finally:
        await integrator.close()
    epoch = await require_epoch(context.database)
    if epoch.note_size < epoch.size:
        raise ValueError(
            f"the last entry of {epoch.origin} is not signed yet: see `muniment tlog status`, then repeat this command"
        )
    mark = read_mark(context.settings.data_dir)
    place = await opening.place_of(context, mark)
    new = await opening.begin_epoch(context, epoch, mark, place, "rotated", secret)
    if new is None:
        raise ValueError(_NO_KEY)
    opening.take_next_secret(context)
    return new


async def _close(context: Context, epoch: Epoch, key: VerifierKey) -> None:
    """Add the last entry, which names the next key, unless it is there."""
    if epoch.state not in {"open", "closing"} or epoch.note is None:
        raise ValueError(f"the log is {epoch.state}, and has to be open and signed: see `muniment tlog status`")
    mark = read_mark(context.settings.data_dir)
    if why := await opening.find_halt_reason(context, epoch, mark, await opening.place_of(context, mark)):
        raise ValueError(why)
    checked = await check(context, epoch, since=epoch.size)
    if epoch.state == "closing":
        found = parse_entry(await last_entry(context.database, checked))
        if not isinstance(found, CloseFact) or found.next_key != key.text:
            raise ValueError("another key was announced: set MUNIMENT_TLOG_KEY_NEXT to that one")
        return
    batch = Batch(grow(checked.edge, [CloseFact(key.text).data]), epoch.after, epoch.backfilled, [])

    async def work(transaction: Transaction) -> None:
        await store.begin_closing(transaction, await store.append(transaction, checked, batch))

    await context.database.write(work)


class EpochState(Record, frozen=True):
    """An epoch: `size` leaves, the first `signed_size` of them in the last checkpoint, which is of `signed_at`."""

    epoch: int
    origin: str
    vkeys: list[str]
    state: str
    why: str | None
    size: int
    signed_size: int
    signed_at: str | None
    opened_at: str


class LogState(Record, frozen=True):
    """The log of a registry. `waiting` counts the facts that are in no tree yet; `key` is `no key`, `ours` or `other`.

    `halt_reason` would halt the log on this host; `mark_size` is the largest signed tree that this host knows.
    """

    name: str
    epochs: list[EpochState]
    waiting: dict[str, int]
    key: str
    halt_reason: str | None
    mark_origin: str | None
    mark_size: int | None

    def __str__(self) -> str:
        if not self.epochs:
            return "the log has not begun: the service begins it when MUNIMENT_TLOG_NAME is set"
        lines = list[str]()
        for each in self.epochs:
            why = f" ({each.why})" if each.why else ""
            signed = f"{each.signed_size} signed at {each.signed_at}" if each.signed_at else "nothing signed"
            lines += [f"{each.origin}: {each.state}{why}, {each.size} entries, {signed}", *each.vkeys]
        lines.append("waiting: " + ", ".join(f"{count} {name}" for name, count in self.waiting.items()))
        known = f"{self.mark_size} entries of {self.mark_origin}" if self.mark_origin else "nothing"
        lines.append(f"signed, as this host knows: {known}")
        lines.append(f"key at hand: {self.key}")
        if self.halt_reason:
            lines.append(f"on this host it would be halted: {self.halt_reason}")
        return "\n".join(lines)


async def look(context: Context) -> LogState:
    """Read the status; changes nothing. Raises `ValueError` for a damaged file of this host, and `OSError`."""
    database = context.database
    epochs = await store.all_epochs(database)
    mark = read_mark(context.settings.data_dir)
    signed, halt, waiting = mark.checkpoint if mark else None, None, dict[str, int]()
    if epochs:
        waiting = await _waiting(database, epochs[0])
        if mark or database.is_shared:  # a status must not claim a place
            place = await opening.place_of(context, mark)
            halt = await opening.find_halt_reason(context, epochs[0], mark, place)
    return LogState(
        name=context.settings.tlog_name, epochs=list(map(_state, epochs)), waiting=waiting,
        key=_key(context, epochs), halt_reason=halt,
        mark_origin=signed.origin if signed else None, mark_size=signed.size if signed else None,
    )  # fmt: skip


async def _waiting(database: Reader, epoch: Epoch) -> dict[str, int]:
    return {
        source.name: await source.rows.count(database, epoch.after[kind] + 1, 2**63 - 1)
        for kind, source in SOURCES.items()
    }


def _state(epoch: Epoch) -> EpochState:
    at_ms = epoch.signed_at_ms
    return EpochState(
        epoch=epoch.epoch, origin=epoch.origin, vkeys=epoch.vkeys.split("\n"), state=epoch.state, why=epoch.why,
        size=epoch.size, signed_size=epoch.note_size, signed_at=None if at_ms is None else iso_time(at_ms),
        opened_at=iso_time(epoch.opened_at_ms),
    )  # fmt: skip


def _key(context: Context, epochs: list[Epoch]) -> str:
    has_file = (context.settings.data_dir / opening.KEY_FILE).exists()
    if not context.settings.tlog_key and (context.database.is_shared or not has_file):
        return "no key"  # a status must not make the file
    secret = opening.secret_of(context)
    is_ours = bool(secret and epochs and keys_of_log(epochs[0].origin, secret)[0].verifier.text == epochs[0].vkey)
    return "ours" if is_ours else "other"
