"""The check of the transparency log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from muniment.errors import Refusal
from muniment.maintenance.doctor.findings import Finding, ok, warn
from muniment.tlog.sequencing import opening, store
from muniment.tlog.sequencing.times import signed_at_ms

if TYPE_CHECKING:
    from muniment.settings import Settings
    from muniment.storage.database import Database
    from muniment.tlog.sequencing.store import Epoch

# A log that does not grow is signed every minute for its time.
_LATE_MS: Final = 300_000
_STATUS: Final = "`muniment tlog status` says more"


async def check_log(settings: Settings, database: Database, *, now_ms: int) -> Finding:
    """Whether the log grows and is signed."""
    if settings.tlog == "off":
        return ok("transparency log", "it is off")
    try:
        epoch = await store.newest(database)
    except Refusal as refusal:
        return warn("transparency log", refusal.detail, "look at the database")
    if epoch is None:
        if database.visible_before and not settings.tlog_key:
            return warn(
                "transparency log", "it cannot begin: no key is at hand here", "set MUNIMENT_TLOG_KEY for the service"
            )
        return ok("transparency log", "it begins when the service runs")
    return judge(epoch, now_ms)


def judge(epoch: Epoch, now_ms: int) -> Finding:
    """The finding about the newest epoch."""
    if epoch.state == "halted":
        remedy = f"find out what was shown to others, then `muniment tlog resume` or `begin`; {_STATUS}"
        return warn("transparency log", f"it is halted: {epoch.why}", remedy)
    if epoch.state == "frozen":
        return warn(
            "transparency log", "it is frozen: new records are not logged", "`muniment tlog resume` lets it go on"
        )
    at_ms = signed_at_ms(epoch)
    if now_ms - (epoch.opened_at_ms if at_ms is None else at_ms) > _LATE_MS:
        remedy = f"look whether the service runs, and at its log: it needs the key; {_STATUS}"
        return warn("transparency log", f"{epoch.origin} was not signed for five minutes", remedy)
    name = "under a random name, which nobody can follow" if opening.is_generated(epoch.origin) else epoch.origin
    return ok("transparency log", f"{epoch.note_size} entries are signed, {name}")
