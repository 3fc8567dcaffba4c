"""Checks of the database, its servers, and samples of its records. `muniment verify` checks all records."""

from __future__ import annotations

import asyncio
from itertools import islice
from typing import TYPE_CHECKING, Final

from muniment.operate.backup_format import block_files
from muniment.operate.doctor.findings import Finding, fail, ok, warn
from muniment.operate.verify import check_trigger, fault_of
from muniment.protocol.errors import (
    AnotherRevision,
    ContentNotFound,
    DatabaseUnavailable,
    Refusal,
    StorageUnavailable,
    Unavailable,
)
from muniment.protocol.evm.hex import HexString
from muniment.protocol.ipfs.block import check_block
from muniment.protocol.ipfs.cid import DAG_PB, SHA2_256, CidParts
from muniment.protocol.ipfs.dag import walk
from muniment.service.blocks import block_directory, is_in_s3, open_s3, place_of_blocks
from muniment.service.resources.functions.store import find_inputs
from muniment.service.storage.sql import number_text

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from muniment.operate.doctor.findings import Examined
    from muniment.protocol.ipfs.block import GetBlock
    from muniment.service.running.settings import Settings
    from muniment.service.storage.database import Database, Row
    from muniment.service.storage.postgres.admin.inspection import ServerState

# The clock of a process is in doubt at five minutes; NTP keeps clocks within a tenth of a second.
CLOCK_MS_WARN: Final = 5_000
CLOCK_MS_FAIL: Final = 300_000
# The newest: a disk that fails now has damaged them, and a volume that is not mounted lacks them.
BLOCKS_CHECKED: Final = 100
_SILENT_REMEDY: Final = "look at the server of the blocks, its bucket, and the credentials in the environment"
CONNECTIONS_SHARE_MAX: Final = 0.9
# The service's own transactions end within ten seconds. Followers of listings wait for the oldest one that wrote.
TRANSACTION_SECONDS_MAX: Final = 60.0
# The time for one replica, whatever its permitted lag: the whole examination has ten seconds.
_REPLICA_SECONDS_MAX: Final = 3.0


async def check_migrations(examined: Examined) -> Finding:
    """Whether the database answers, and has every migration of this release."""
    try:
        await examined.database.check()
    except AnotherRevision as refusal:
        return fail(refusal.detail, "follow docs/run/upgrade.md, A database of another revision")
    except Unavailable as refusal:
        is_behind = "migrations" in (refusal.detail or "")
        remedy = "muniment migrate" if is_behind else "look at the database, its address and its log"
        return fail(refusal.detail, remedy)
    return ok("it answers and has every migration")


async def check_clock(examined: Examined) -> Finding:
    """Whether the clock of this machine agrees with the clock of the database server."""
    try:
        theirs = await examined.database.time_ms()
    except Refusal as refusal:
        return fail(refusal.detail, "look at the database")
    if theirs is None:
        return ok("SQLite has no clock of its own")
    ahead = examined.now_ms - theirs
    shown = f"{abs(ahead) / 1000:.1f} s {'ahead of' if ahead > 0 else 'behind'} the database"
    if abs(ahead) > CLOCK_MS_FAIL:
        return fail(shown, "set the clock that is wrong, by NTP: until then new records are refused")
    if abs(ahead) > CLOCK_MS_WARN:
        return warn(shown, "set the clocks by NTP")
    return ok(shown)


async def check_blocks(examined: Examined) -> Finding:
    """Whether the blocks of the newest functions exist, and match their hashes."""
    sql = f"SELECT digest FROM functions ORDER BY seq DESC LIMIT {number_text(BLOCKS_CHECKED)}"
    repair = "run `muniment verify`; mount the volume, or upload the bundles again to repair them"
    try:
        get_block = await asyncio.to_thread(_reader, examined.settings, examined.database, asyncio.get_running_loop())
    except ValueError as error:
        return fail(str(error), "repair this setting: the service does not start with it")
    except StorageUnavailable as refusal:
        return fail(refusal.detail, _SILENT_REMEDY)
    try:
        digests = [bytes(digest) for (digest,) in await examined.database.fetch(sql)]
        if not digests:
            return ok("no function is registered")
        count = await asyncio.to_thread(_hash, get_block, digests)
    except StorageUnavailable as refusal:
        return fail(refusal.detail, _SILENT_REMEDY)
    except (Refusal, OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        return fail(str(reason), repair)
    return ok(f"the newest {count} match their hashes")


def _reader(settings: Settings, database: Database, loop: asyncio.AbstractEventLoop) -> GetBlock:
    """A read-only view of the service's blocks. A bucket is asked once, as `/readyz` does.

    Raises `ValueError` and `StorageUnavailable`.
    """
    url = place_of_blocks(settings.blocks_url, settings.database_url)
    directory = block_directory(url, settings.data_dir)
    if directory is not None:
        return block_files(directory)
    if is_in_s3(url):
        store = open_s3(url, spools=settings.data_dir)
        store.check()
        return store.get

    def get(digest: bytes) -> bytes:
        found = database.fetch_one("SELECT data FROM blocks WHERE digest = ?", (digest,))
        row = asyncio.run_coroutine_threadsafe(_awaited(found), loop).result()
        if row is None:
            raise ContentNotFound(f"block {digest.hex()} is missing")
        return check_block(digest, row[0])

    return get


async def _awaited(found: Awaitable[Row | None]) -> Row | None:
    return await found


def _hash(get_block: GetBlock, digests: list[bytes]) -> int:
    """Read at most `BLOCKS_CHECKED` blocks; return their number. Raises `Refusal` and `OSError`."""
    blocks = (block for digest in digests for block in walk(get_block, CidParts(0, DAG_PB, SHA2_256, digest)))
    return sum(1 for _ in islice(blocks, BLOCKS_CHECKED))


async def check_signature(examined: Examined) -> Finding:
    """Whether the newest trigger matches the hash and the signer in its row."""
    database = examined.database
    columns = "seq, sig, signer, digest, function_digest, protocol, deactivated, end_date_ms, record"
    try:
        row = await database.fetch_one(f"SELECT {columns} FROM triggers ORDER BY seq DESC LIMIT 1")
        if row is None:
            return ok("no trigger is registered")
        fault = fault_of(check_trigger, row, await find_inputs(database, row[4]) or {})
    except Refusal as refusal:
        return fail(refusal.detail, "look at the database")
    if fault:
        sig = HexString.from_raw(row[1])
        return fail(f"trigger {sig}: {fault}", "run `muniment verify`, and compare with a backup")
    return ok("the newest trigger is signed by its owner")


async def check_server(examined: Examined) -> list[Finding]:
    """The state of the PostgreSQL server, and the effect of a pooler in front of it."""
    from muniment.service.storage.postgres.admin.inspection import state_of  # noqa: PLC0415 - as above
    from muniment.service.storage.postgres.driver_errors import POOLED  # noqa: PLC0415 - a driver is loaded only when it is used

    url = examined.settings.database_url
    try:
        findings = judge_server(await state_of(url))
    except DatabaseUnavailable as refusal:
        if refusal.detail == POOLED:
            return [fail(POOLED, "see docs/run/scaling.md, Connection poolers", check="pooler")]
        return [fail(refusal.detail, "look at the database server, its connections and its log", check="server")]
    return [*findings, ok("each connection has a session of its own", check="pooler")]


def judge_server(state: ServerState) -> list[Finding]:
    """A finding for each part of a server's state."""
    findings: list[Finding] = []
    if state.is_standby or state.is_read_only:
        what = "it is a standby" if state.is_standby else "default_transaction_read_only is on"
        remedy = "name the primary in MUNIMENT_DATABASE_URL, with target_session_attrs=read-write"
        findings.append(fail(f"the server takes no writes: {what}", remedy, check="rights"))
    elif state.closed_tables:
        remedy = (
            "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public, and GRANT USAGE ON ALL SEQUENCES IN "
            "SCHEMA public, TO the service's user"
        )
        findings.append(fail(f"this user may not use {', '.join(state.closed_tables)}", remedy, check="rights"))
    else:
        findings.append(ok("this user may use every table and sequence", check="rights"))
    if state.changed_settings:
        shown = ", ".join(f"{name} is {value}" for name, value in sorted(state.changed_settings.items()))
        remedy = "a pooler ignores them: set them with ALTER ROLE … SET (docs/run/scaling.md)"
        findings.append(fail(shown, remedy, check="session settings"))
    else:
        findings.append(ok("as the service asks for them", check="session settings"))
    shown = f"{state.connections} of {state.connections_max} are used"
    if state.connections >= CONNECTIONS_SHARE_MAX * state.connections_max:
        remedy = "raise max_connections, or run fewer processes"
        findings.append(warn(shown, remedy, check="connections"))
    else:
        findings.append(ok(shown, check="connections"))
    shown = f"the oldest is {state.oldest_transaction_s:.0f} s old"
    if state.oldest_transaction_s > TRANSACTION_SECONDS_MAX:
        remedy = (
            "find it in pg_stat_activity. Let a dump finish. Terminate any other: it holds up VACUUM and, once it "
            "has written (backend_xid), clients that follow listings"
        )
        findings.append(warn(shown, remedy, check="transactions"))
    else:
        findings.append(ok(shown, check="transactions"))
    return findings


async def check_replicas(examined: Examined) -> list[Finding]:
    """Whether each replica answers and catches up with the primary. The URLs are not shown."""
    settings, findings = examined.settings, list[Finding]()
    for place, url in enumerate(settings.read_urls, 1):
        findings.append(await _check_replica(f"replica {place}", settings, url))
    return findings


async def _check_replica(check: str, settings: Settings, url: str) -> Finding:
    from muniment.service.storage.postgres.admin.inspection import catches_up  # noqa: PLC0415 - a driver is loaded only when it is used

    seconds_max = min(settings.replica_lag_s_max, _REPLICA_SECONDS_MAX)
    remedy = "look at the replica and its log; until then the primary serves the reads"
    try:
        if await catches_up(settings.database_url, url, seconds_max=seconds_max):
            return ok("it has the writes of the primary", check=check)
    except DatabaseUnavailable as refusal:
        return warn(refusal.detail, remedy, check=check)
    return warn(f"it lacks writes of the primary after {seconds_max:g} s, or is not its replica", remedy, check=check)
