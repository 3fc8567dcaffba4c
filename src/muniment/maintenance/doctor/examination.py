"""The whole examination: groups of checks at the same time, with one deadline for all."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from muniment.app import directories_of
from muniment.blocks import block_directory
from muniment.errors import DatabaseUnavailable
from muniment.maintenance import databases
from muniment.maintenance.doctor import contents, database, files, machine, nodes, servers
from muniment.maintenance.doctor.backups import check_backup
from muniment.maintenance.doctor.daemon import in_daemon
from muniment.maintenance.doctor.findings import Finding, fail
from muniment.maintenance.doctor.front import check_front
from muniment.maintenance.doctor.log import check_log
from muniment.maintenance.doctor.pins import check_pins
from muniment.maintenance.doctor.witnesses import check_witnesses

if TYPE_CHECKING:
    from muniment.settings import Settings
    from muniment.storage.database import Database

# An operator waits for ten seconds. A busy machine takes up to three of them to start the command.
SECONDS_MAX: Final = 7.0


@dataclass(frozen=True, slots=True)
class Request:
    """What to examine: the settings, and if the operator names them, the URL for clients and a backup's directory."""

    settings: Settings
    url: str = ""
    backup: Path | None = None


# The checks of one place: they append their findings one by one, at the time in Unix seconds.
Group = Callable[[Request, float, list[Finding]], Awaitable[None]]


def examine(request: Request, *, seconds_max: float = SECONDS_MAX) -> tuple[list[Finding], bool]:
    """The findings, group by group, and whether all checks have ended.

    A group that has not ended after `seconds_max` fails; what its checks found until then is kept.
    """
    groups: dict[str, Group] = {"machine": _check_machine, "database": _check_database}
    if request.url:
        groups["service"] = _check_service
    found: dict[str, list[Finding]] = {name: [] for name in groups}
    ended: set[str] = set()

    def run() -> None:
        asyncio.run(_examine(request, groups, found, ended))

    # The event loop has a thread of its own, because a file system or a driver may hold up even its end.
    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds_max)
    findings: list[Finding] = []
    for name in groups:
        findings += found[name]
        if name not in ended:
            findings.append(fail(name, f"its checks did not end within {seconds_max:g} s", "look why it hangs"))
    return findings, not thread.is_alive()


async def _examine(
    request: Request, groups: Mapping[str, Group], found: Mapping[str, list[Finding]], ended: set[str]
) -> None:
    now_s = time.time()

    async def run(name: str) -> None:
        await _guarded(name, groups[name](request, now_s, found[name]), found[name])
        ended.add(name)

    await asyncio.gather(*(run(name) for name in groups))


async def _guarded(name: str, check: Awaitable[None], found: list[Finding]) -> None:
    """Make a check. A mistake in it is a finding, and the other checks go on."""
    try:
        await check
    except Exception as error:  # noqa: BLE001 - the doctor works where other programs do not
        remedy = "tell the makers of muniment, with the release and this line"
        found.append(fail(name, f"a check ended with {type(error).__name__}", remedy))


async def _check_machine(request: Request, now_s: float, found: list[Finding]) -> None:
    await in_daemon(partial(_look_at_machine, request, now_s, found))


def _look_at_machine(request: Request, now_s: float, found: list[Finding]) -> None:
    settings = request.settings
    directory, is_sqlite = settings.data_dir, settings.database_url.startswith("sqlite:")
    found.append(machine.check_interpreter())
    found.append(machine.check_libraries())
    found.append(machine.check_descriptors(settings.connections_max))
    found.append(files.check_secrets(settings))
    found.append(files.check_modes(settings))
    found.append(files.check_proxies(settings, request.url))
    found += machine.check_space(directory)
    found.append(machine.check_fsync(directory))
    found.append(machine.check_file_system(directory, holds_database=is_sqlite))
    if is_sqlite:
        found += files.check_log(settings)
        found += database.check_file_rights(settings)
    found.append(check_backup(settings, request.backup, now_s=now_s))
    found += check_reserves(settings)
    blocks = None
    with suppress(ValueError):  # the check of the blocks says what is wrong with the setting
        blocks = block_directory(settings.blocks_url, directory)
    if blocks is not None and not blocks.is_relative_to(directory):
        found += [*machine.check_space(blocks), machine.check_file_system(blocks, holds_database=False)]


def check_reserves(settings: Settings) -> list[Finding]:
    """The reserve of each disk that the service looks at. One that a directory is not on yet is left out there too."""
    by_disk: dict[int, Path] = {}
    with suppress(ValueError):  # the check of the blocks says what is wrong with the setting
        for directory in directories_of(settings):
            with suppress(OSError):
                by_disk.setdefault(directory.stat().st_dev, directory)
    return [machine.check_reserve(each) for each in by_disk.values()]


async def _check_database(request: Request, now_s: float, found: list[Finding]) -> None:
    try:
        async with databases.opened(request.settings) as opened:
            await _check_opened(request.settings, opened, now_s, found)
    except (DatabaseUnavailable, ValueError) as error:
        found.append(fail("database", str(error), "look at the setting, the file, its mode and its disk"))


async def _check_opened(settings: Settings, opened: Database, now_s: float, found: list[Finding]) -> None:
    migrations, servers_found, replicas_found = await asyncio.gather(
        database.check_migrations(opened), _check_servers(settings), servers.check_replicas(settings)
    )
    found += [migrations, *servers_found, *replicas_found]
    if migrations.level:
        return  # the other checks would only repeat it
    found.append(await database.check_clock(opened, int(now_s * 1000)))
    found.append(await contents.check_signature(opened))

    async def check_blocks() -> None:
        found.append(await contents.check_blocks(settings, opened))

    async def check_nodes() -> None:
        found.extend(await nodes.check_chains(settings, opened, now_s=now_s))

    async def check_queue() -> None:
        found.extend(await check_pins(settings, opened, now_ms=int(now_s * 1000)))

    async def look_at_log() -> None:
        found.append(await check_log(settings, opened, now_ms=int(now_s * 1000)))

    async def ask_witnesses() -> None:
        found.extend(await check_witnesses(settings, opened))

    await asyncio.gather(
        _guarded("transparency log", look_at_log(), found),
        _guarded("blocks", check_blocks(), found), _guarded("chains", check_nodes(), found),
        _guarded("pins", check_queue(), found), _guarded("witnesses", ask_witnesses(), found),
    )  # fmt: skip


async def _check_servers(settings: Settings) -> list[Finding]:
    is_sqlite = settings.database_url.startswith("sqlite:")
    return [] if is_sqlite else await servers.check_server(settings.database_url)


async def _check_service(request: Request, now_s: float, found: list[Finding]) -> None:
    await check_front(request.url, now_s=now_s, found=found)
