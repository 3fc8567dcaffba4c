"""The whole examination: all checks at once, each with the same deadline."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from muniment.blocks import block_directory
from muniment.errors import DatabaseUnavailable
from muniment.maintenance import databases
from muniment.maintenance.doctor import contents, database, files, machine, nodes, servers
from muniment.maintenance.doctor.backups import check_backup
from muniment.maintenance.doctor.daemon import in_daemon
from muniment.maintenance.doctor.findings import Finding, fail
from muniment.maintenance.doctor.front import check_front
from muniment.maintenance.doctor.pins import check_pins

if TYPE_CHECKING:
    from collections.abc import Awaitable
    from pathlib import Path

    from muniment.settings import Settings
    from muniment.storage.database import Database

# An operator waits for ten seconds; the rest is for printing.
SECONDS_MAX: Final = 9.0


@dataclass(frozen=True, slots=True)
class Request:
    """What to examine: the settings, and if the operator names them, the URL for clients and a backup's directory."""

    settings: Settings
    url: str = ""
    backup: Path | None = None


def examine(request: Request, *, seconds_max: float = SECONDS_MAX) -> list[Finding]:
    """The findings, in the order of the checks. A check that has not ended after `seconds_max` has failed."""
    return asyncio.run(_examine(request, seconds_max, time.time()))


async def _examine(request: Request, seconds_max: float, now_s: float) -> list[Finding]:
    settings = request.settings
    checks: dict[str, Awaitable[list[Finding]]] = {
        "machine": in_daemon(partial(_check_machine, request, now_s)),
        "database": _check_database(settings, now_s),
    }
    if request.url:
        checks["service"] = check_front(request.url, now_s=now_s)
    tasks = {name: asyncio.ensure_future(check) for name, check in checks.items()}
    await asyncio.wait(tasks.values(), timeout=seconds_max)
    findings: list[Finding] = []
    for name, task in tasks.items():
        if task.done():
            findings += task.result()
        else:
            task.cancel()
            findings.append(fail(name, f"its checks did not end within {seconds_max:g} s", "look why it hangs"))
    return findings


def _check_machine(request: Request, now_s: float) -> list[Finding]:
    settings = request.settings
    directory, is_sqlite = settings.data_dir, settings.database_url.startswith("sqlite:")
    findings = [
        machine.check_interpreter(),
        machine.check_libraries(),
        machine.check_descriptors(settings.connections_max),
        files.check_secrets(settings),
        files.check_modes(settings),
        files.check_proxies(settings, request.url),
        *machine.check_space(directory),
        machine.check_fsync(directory),
        machine.check_file_system(directory, holds_database=is_sqlite),
        *files.check_log(settings),
        *database.check_file_rights(settings),
        check_backup(request.backup, now_s=now_s),
    ]
    blocks = block_directory(settings.blocks_url, directory)
    if blocks is not None and not blocks.is_relative_to(directory):
        findings += [*machine.check_space(blocks), machine.check_file_system(blocks, holds_database=False)]
    return findings


async def _check_database(settings: Settings, now_s: float) -> list[Finding]:
    try:
        async with databases.opened(settings) as opened:
            return await _check_opened(settings, opened, now_s)
    except DatabaseUnavailable as refusal:
        return [fail("database", refusal.detail, "look at the file, its mode and its disk")]


async def _check_opened(settings: Settings, opened: Database, now_s: float) -> list[Finding]:
    migrations, servers_found, replicas_found = await asyncio.gather(
        database.check_migrations(opened), _check_servers(settings), servers.check_replicas(settings)
    )
    findings = [migrations, *servers_found, *replicas_found]
    if migrations.level:
        return findings  # the other checks would only repeat it
    findings.append(await database.check_clock(opened, int(now_s * 1000)))
    findings.append(await contents.check_blocks(settings, opened))
    findings.append(await contents.check_signature(opened))
    findings += await nodes.check_chains(settings, opened, now_s=now_s)
    findings += await check_pins(settings, opened, now_ms=int(now_s * 1000))
    return findings


async def _check_servers(settings: Settings) -> list[Finding]:
    is_sqlite = settings.database_url.startswith("sqlite:")
    return [] if is_sqlite else await servers.check_server(settings.database_url)
