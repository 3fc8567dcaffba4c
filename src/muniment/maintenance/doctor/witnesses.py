"""Checks of the witnesses of the transparency log: whether they answer, and what they have of the log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from muniment.errors import Refusal
from muniment.maintenance.doctor.findings import Finding, fail, ok, warn
from muniment.tlog.keys import parse_verifier_key
from muniment.tlog.sequencing import store
from muniment.tlog.sequencing.checking import check_beginning
from muniment.tlog.witnessing.knowing import known_checkpoints
from muniment.tlog.witnessing.policies import read_policy

if TYPE_CHECKING:
    from muniment.settings import Settings
    from muniment.storage.database import Database
    from muniment.tlog.witnessing.asking import Known

_UNKNOWN = "http-404"


async def check_witnesses(settings: Settings, database: Database) -> list[Finding]:
    """A finding for each witness of the policy that has a URL; none when the log has no policy."""
    if settings.tlog == "off" or not settings.tlog_policy:
        return []
    try:
        policy = read_policy(settings)
    except ValueError as error:
        return [fail("witnesses", str(error), "repair the file that MUNIMENT_TLOG_POLICY names")]
    try:
        epoch = await store.newest(database)
        if policy is None or epoch is None:
            return [ok("witnesses", "not asked: the transparency log has not begun")]
        found = await known_checkpoints(policy, epoch.origin, parse_verifier_key(epoch.vkey))
        if not found:
            return [warn("witnesses", "no witness of the policy has a URL", "add the URLs to the file of the policy")]
        return [await _judge(database, known) for known in found]
    except Refusal as refusal:
        return [warn("witnesses", refusal.detail, "look at the database")]


async def _judge(database: Database, known: Known) -> Finding:
    """The finding about one witness. The log is read again, since it may have grown while the witness was asked."""
    check, signed, epoch = f"witness {known.witness}", known.checkpoint, await store.newest(database)
    if signed is None or epoch is None:
        if known.detail == _UNKNOWN:
            remedy = "give its operator the origin and the key of the log; some witnesses show no checkpoints"
            return warn(check, "it answers, and shows no checkpoint of this log", remedy)
        return warn(check, known.detail, "look at the URL in the policy, or ask the operator of the witness")
    shown = f"it has {signed.size} entries of the log, and the database {epoch.size}"
    try:
        if signed.size <= epoch.size:
            await check_beginning(database, epoch, signed)
            return ok(check, shown)
    except ValueError as error:
        shown = f"{shown}; {error}"
    return fail(check, shown, "the database has gone back, or was replaced: restore it as it was when it signed this")
