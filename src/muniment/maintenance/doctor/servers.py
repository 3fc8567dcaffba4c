"""Checks of PostgreSQL: rights, settings as they hold behind a pooler, connections, transactions, replicas."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from muniment.errors import DatabaseUnavailable
from muniment.maintenance.doctor.findings import Finding, fail, ok, warn

if TYPE_CHECKING:
    from muniment.settings import Settings
    from muniment.storage.postgres.admin.inspection import ServerState

CONNECTIONS_SHARE_MAX: Final = 0.9
# The service's own transactions end within ten seconds. Followers of listings wait for the oldest one that wrote.
TRANSACTION_SECONDS_MAX: Final = 60.0
# The time for one replica, whatever its permitted lag: the whole examination has ten seconds.
_REPLICA_SECONDS_MAX: Final = 3.0


async def check_server(url: str) -> list[Finding]:
    """What the server at `url` says of itself, and what a pooler in front of it does."""
    from muniment.storage.postgres.admin.inspection import mixes_sessions, state_of  # noqa: PLC0415 - as above
    from muniment.storage.postgres.driver_errors import POOLED  # noqa: PLC0415 - a driver is loaded only when it is used

    try:
        findings = judge(await state_of(url))
        mixes = await mixes_sessions(url)
    except DatabaseUnavailable as refusal:
        if refusal.detail == POOLED:
            return [fail("pooler", POOLED, "look at its pool_mode (docs/scaling.md)")]
        return [fail("server", refusal.detail, "look at the database server, its connections and its log")]
    if mixes:
        remedy = "configure the pooler to keep prepared statements, or use session mode (docs/scaling.md)"
        return [*findings, fail("pooler", "it gives the statements of one session to another", remedy)]
    return [*findings, ok("pooler", "a prepared statement stays with its connection")]


def judge(state: ServerState) -> list[Finding]:
    """A finding for each part of a server's state."""
    findings: list[Finding] = []
    if state.is_standby or state.is_read_only:
        what = "it is a standby" if state.is_standby else "default_transaction_read_only is on"
        remedy = "name the primary in MUNIMENT_DATABASE_URL, with target_session_attrs=read-write"
        findings.append(fail("rights", f"the server takes no writes: {what}", remedy))
    elif state.closed_tables:
        remedy = (
            "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public, and GRANT USAGE ON ALL SEQUENCES IN "
            "SCHEMA public, TO the service's user"
        )
        findings.append(fail("rights", f"this user may not use {', '.join(state.closed_tables)}", remedy))
    else:
        findings.append(ok("rights", "this user may use every table and sequence"))
    if state.changed_settings:
        shown = ", ".join(f"{name} is {value}" for name, value in sorted(state.changed_settings.items()))
        remedy = "a pooler ignores them: set them with ALTER ROLE … SET (docs/scaling.md)"
        findings.append(fail("session settings", shown, remedy))
    else:
        findings.append(ok("session settings", "as the service asks for them"))
    shown = f"{state.connections} of {state.connections_max} are used"
    if state.connections >= CONNECTIONS_SHARE_MAX * state.connections_max:
        remedy = "raise max_connections, run fewer processes, or put a pooler in front"
        findings.append(warn("connections", shown, remedy))
    else:
        findings.append(ok("connections", shown))
    shown = f"the oldest is {state.oldest_transaction_s:.0f} s old"
    if state.oldest_transaction_s > TRANSACTION_SECONDS_MAX:
        remedy = (
            "find it in pg_stat_activity: a dump ends by itself; for another one VACUUM waits, and if it has written "
            "(backend_xid), followers of listings wait too: end it"
        )
        findings.append(warn("transactions", shown, remedy))
    else:
        findings.append(ok("transactions", shown))
    return findings


async def check_replicas(settings: Settings) -> list[Finding]:
    """Whether each replica answers, and has all writes of this moment soon. The URLs are not shown."""
    findings: list[Finding] = []
    for place, url in enumerate(settings.read_urls, 1):
        findings.append(await _check_replica(f"replica {place}", settings, url))
    return findings


async def _check_replica(check: str, settings: Settings, url: str) -> Finding:
    from muniment.storage.postgres.admin.inspection import catches_up  # noqa: PLC0415 - a driver is loaded only when it is used

    seconds_max = min(settings.replica_lag_s_max, _REPLICA_SECONDS_MAX)
    remedy = "look at the replica and its log; meanwhile the primary answers its readers"
    try:
        if await catches_up(settings.database_url, url, seconds_max=seconds_max):
            return ok(check, "it has the writes of the primary")
    except DatabaseUnavailable as refusal:
        return warn(check, refusal.detail, remedy)
    return warn(check, f"it lacks writes of the primary after {seconds_max:g} s, or is no replica of it", remedy)
