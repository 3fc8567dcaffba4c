"""`muniment doctor`: the table of all checks, and their run with one deadline.

To add a check, write a function of `Examined` and add its row to `CHECKS`.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from inspect import isawaitable
from typing import Final, NamedTuple

from muniment.operate.doctor import database, front, log, machine, nodes, sandbox
from muniment.operate.doctor.findings import Examined, Finding, Findings, fail
from muniment.protocol.errors import DatabaseUnavailable
from muniment.service.storage import open_database

# The promise is ten seconds. A busy machine takes up to three of them to start the command.
SECONDS_MAX: Final = 7.0


class Check(NamedTuple):
    """A row of the table.

    The groups run at the same time, and the checks of a group one after another. `check` runs in a thread; if its
    result is awaitable, it is awaited in the event loop. A finding that has no name gets the name of its row.
    """

    group: str
    name: str
    applies_to: Callable[[Examined], object]
    check: Callable[[Examined], Findings | Awaitable[Findings]]


def _always(_: Examined) -> bool:
    return True


def _on_sqlite(examined: Examined) -> bool:
    return examined.settings.database_url.startswith("sqlite:")


def _on_postgres(examined: Examined) -> bool:
    return examined.settings.database_url.startswith("postgres")


def _is_witnessed(examined: Examined) -> bool:
    return bool(examined.settings.tlog_name and examined.settings.tlog_policy)


def _has_url(examined: Examined) -> bool:
    return bool(examined.url)


CHECKS: Final = (
    Check("machine", "libraries", _always, machine.check_libraries),
    Check("machine", "environment", _always, machine.check_environment),
    Check("machine", "descriptors", _always, machine.check_descriptors),
    Check("machine", "secrets", _always, machine.check_secrets),
    Check("machine", "data directory", _always, machine.check_modes),
    Check("machine", "disk", _always, machine.check_space),
    Check("machine", "fsync", _always, machine.check_fsync),
    Check("machine", "file system", _always, machine.check_file_systems),
    Check("machine", "write-ahead log", _on_sqlite, machine.check_write_ahead_log),
    Check("machine", "rights", _on_sqlite, machine.check_file_rights),
    Check("machine", "backup", _always, machine.check_backup),
    Check("sandbox", "sandbox", _always, sandbox.check_sandbox),
    Check("database", "database", _always, database.check_migrations),
    Check("server", "server", _on_postgres, database.check_server),
    Check("server", "replica", _on_postgres, database.check_replicas),
    Check("records", "clock", _always, database.check_clock),
    Check("records", "signature", _always, database.check_signature),
    Check("blocks", "blocks", _always, database.check_blocks),
    Check("chains", "chains", _always, nodes.check_chains),
    Check("log", "transparency log", _always, log.check_log),
    Check("log", "witnesses", _is_witnessed, log.check_witnesses),
    Check("proxies", "proxies", _always, front.check_proxies),
    Check("proxies", "log-ins", _always, front.check_logins),
    Check("service", "service", _has_url, front.check_service),
)
# Groups that need the database. They start when the checks of the group `database` have found no fault.
_AFTER_DATABASE: Final = frozenset({"records", "blocks", "chains", "log"})


@dataclass(slots=True)
class _Group:
    """Checks that run one after another: the first of `left` is running."""

    left: list[Check] = field(default_factory=list[Check])
    found: list[Finding] = field(default_factory=list[Finding])
    has_started: bool = False

    async def run(self, examined: Examined) -> None:
        self.has_started = True
        while self.left:
            self.found += await _findings_of(self.left[0], examined)
            del self.left[0]

    def unfinished(self, seconds_max: float) -> list[Finding]:
        """The finding about the check that has not ended, and about the checks after it."""
        names = [each.name for each in self.left] if self.has_started else []
        if not names:
            return []
        rest = f", and these checks did not run: {', '.join(names[1:])}" if names[1:] else ""
        message = f"the check did not end within {seconds_max:g} s{rest}"
        return [fail(message, "find out why it hangs: a disk, a server or the network", check=names[0])]


def examine(
    examined: Examined, *, checks: Iterable[Check] = CHECKS, seconds_max: float = SECONDS_MAX
) -> tuple[list[Finding], bool]:
    """Run the checks that apply. Return the findings, group by group, and whether all checks have ended."""
    groups: dict[str, _Group] = {}
    for each in checks:
        if each.applies_to(examined):
            groups.setdefault(each.group, _Group()).left.append(each)

    def run() -> None:
        asyncio.run(_examine(examined, groups))

    # The event loop has a thread of its own, because a file system or a driver may block it.
    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds_max)
    findings = [each for group in groups.values() for each in [*group.found, *group.unfinished(seconds_max)]]
    return findings, not thread.is_alive()


async def _examine(examined: Examined, groups: Mapping[str, _Group]) -> None:
    independent = [group for name, group in groups.items() if name not in _AFTER_DATABASE and name != "database"]
    await asyncio.gather(_examine_database(examined, groups), *(group.run(examined) for group in independent))


async def _examine_database(examined: Examined, groups: Mapping[str, _Group]) -> None:
    settings, first = examined.settings, groups["database"]
    try:
        opened = open_database(settings.database_url, data_dir=settings.data_dir)
    except (DatabaseUnavailable, ValueError) as error:
        remedy = "look at the setting, the file, its mode and its disk"
        first.found.append(fail(str(error), remedy, check="database"))
        return
    examined = replace(examined, opened=opened)
    try:
        await first.run(examined)
        if not any(each.level for each in first.found):
            await asyncio.gather(*(group.run(examined) for name, group in groups.items() if name in _AFTER_DATABASE))
    finally:
        await opened.close()


async def _findings_of(row: Check, examined: Examined) -> list[Finding]:
    """The findings of one check. An unexpected error is a finding, and the other checks go on."""
    try:
        outcome = await asyncio.to_thread(row.check, examined)
        found = await outcome if isawaitable(outcome) else outcome
    except Exception as error:  # noqa: BLE001 - the doctor runs where other programs fail
        found = fail(
            f"the check ended with {type(error).__name__}",
            "report it to the maintainers of Muniment, with release and this line",
        )
    listed = [found] if isinstance(found, Finding) else found
    return [each if each.check else replace(each, check=row.name) for each in listed]
