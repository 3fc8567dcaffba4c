"""Begin the next epoch: by rotation, which the last entry announces, or after a loss."""

from __future__ import annotations

from typing import TYPE_CHECKING

from muniment.protocol.log.entries import CloseFact, parse_entry
from muniment.protocol.log.growth import grow
from muniment.protocol.log.keys import keys_of_log
from muniment.service.resources.log.operating.freeze import last_entry, require_epoch
from muniment.service.resources.log.sequencing import opening, store
from muniment.service.resources.log.sequencing.checking import check
from muniment.service.resources.log.sequencing.integrator import Integrator
from muniment.service.resources.log.sequencing.mark import read_mark
from muniment.service.resources.log.sequencing.store import Batch

if TYPE_CHECKING:
    from muniment.protocol.log.keys import VerifierKey
    from muniment.service.context import Context
    from muniment.service.resources.log.sequencing.store import Epoch
    from muniment.service.storage.database import Transaction

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
            f"the log is {before.state}, and has no reason to halt. To change its key: `muniment tlog rotate`, which "
            "followers understand"
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
            raise ValueError("the log closes for another key than the one that is given now")
        return
    batch = Batch(grow(checked.edge, [CloseFact(key.text).data]), epoch.after, epoch.backfilled, [])

    async def work(transaction: Transaction) -> None:
        await store.begin_closing(transaction, await store.append(transaction, checked, batch))

    await context.database.write(work)
