"""Checks of the transparency log, and of its witnesses: whether they answer, and their checkpoints of the log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from muniment.operate.doctor.findings import Finding, fail, ok, warn
from muniment.protocol.errors import Refusal
from muniment.protocol.log.notes import parse_verifier_key
from muniment.service.resources.log import opening, store
from muniment.service.resources.log.checking import check_beginning
from muniment.service.resources.log.witnesses import known_checkpoints, read_policy

if TYPE_CHECKING:
    from muniment.operate.doctor.findings import Examined
    from muniment.service.resources.log.store import Epoch
    from muniment.service.resources.log.witnesses import KnownCheckpoint
    from muniment.service.storage.database import Database

# A log without new entries is signed every minute.
_LATE_MS: Final = 300_000
_STATUS: Final = "see `muniment tlog status`"
_UNKNOWN: Final = "http-404"


async def check_log(examined: Examined) -> Finding:
    """Whether the transparency log grows and is signed."""
    settings, database = examined.settings, examined.database
    try:
        epoch = await store.newest(database)
    except Refusal as refusal:
        return warn(refusal.detail, "look at the database")
    if epoch is None:
        if not settings.tlog_name:
            return ok("there is none; to begin one, set MUNIMENT_TLOG_NAME to the name of this registry")
        if database.is_shared and not settings.tlog_key:
            return warn("it cannot begin: it has no key here", "set MUNIMENT_TLOG_KEY for the service")
        return ok("it begins when the service runs")
    if fault := opening.name_fault(settings, epoch):
        return fail(fault, "set MUNIMENT_TLOG_NAME to that name again")
    return judge_log(epoch, examined.now_ms)


def judge_log(epoch: Epoch, now_ms: int) -> Finding:
    """The finding about the newest epoch."""
    if epoch.state == "halted":
        remedy = f"find out which checkpoints others have seen, then `muniment tlog resume` or `begin`; {_STATUS}"
        return warn(f"it is halted: {epoch.why}", remedy)
    if epoch.state == "frozen":
        return warn("it is frozen: new records are not logged", "run `muniment tlog resume` to continue it")
    at_ms = epoch.signed_at_ms
    if now_ms - (epoch.opened_at_ms if at_ms is None else at_ms) > _LATE_MS:
        remedy = f"check that the service runs and has the key; {_STATUS}"
        return warn(f"{epoch.origin} has not been signed for five minutes", remedy)
    return ok(f"{epoch.note_size} entries are signed, {epoch.origin}")


async def check_witnesses(examined: Examined) -> list[Finding]:
    """A finding for each witness of the policy that has a URL."""
    database = examined.database
    try:
        policy = read_policy(examined.settings)
    except ValueError as error:
        return [fail(str(error), "repair the file that MUNIMENT_TLOG_POLICY names")]
    try:
        epoch = await store.newest(database)
        if policy is None or epoch is None:
            return [ok("not asked: the transparency log has not begun")]
        found = await known_checkpoints(policy, epoch.origin, parse_verifier_key(epoch.vkey))
        if not found:
            return [warn("no witness of the policy has a URL", "add the URLs to the file of the policy")]
        return [await _judge_witness(database, known) for known in found]
    except Refusal as refusal:
        return [warn(refusal.detail, "look at the database")]


async def _judge_witness(database: Database, known: KnownCheckpoint) -> Finding:
    """The finding about one witness. The log is read again, because it may have grown meanwhile."""
    check, signed, epoch = f"witness {known.witness}", known.checkpoint, await store.newest(database)
    if signed is None or epoch is None:
        if known.detail == _UNKNOWN:
            remedy = "give its operator the origin and the key of the log; some witnesses show no checkpoints"
            return warn("it answers, but shows no checkpoint of this log", remedy, check=check)
        remedy = "look at the URL in the policy, or ask the operator of the witness"
        return warn(known.detail, remedy, check=check)
    shown = f"it has {signed.size} entries of the log, the database has {epoch.size}"
    try:
        if signed.size <= epoch.size:
            await check_beginning(database, epoch, signed)
            return ok(shown, check=check)
    except ValueError as error:
        shown = f"{shown}; {error}"
    remedy = "this database is older than the checkpoint, or the wrong one: restore its newest state"
    return fail(shown, remedy, check=check)
