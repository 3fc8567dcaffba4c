"""Readiness checks, in the order in which `/readyz` makes them."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import structlog

from muniment.context import Context
from muniment.errors import NotReady, Unavailable
from muniment.limits.disk import reserve_of
from muniment.settings import MIB
from muniment.tlog.sequencing import store

# Below this, deactivations and the write-ahead log may not fit: not ready, before writes fail. A small disk keeps less
# in reserve, and owners must reach the process while that lasts.
DISK_BYTES_MIN: Final = 64 * MIB
# Checks take half a millisecond. More frequent calls get the last outcome.
CHECKS_PER_SECOND_MAX: Final = 50
# Raises `Unavailable`, often a `NotReady`, with the reason when its part is not in order.
Check = Callable[[Context], Awaitable[None]]
# Returns a matter for the operator's attention in a process that is ready, or None. Raises `Unavailable` as checks do.
Note = Callable[[Context], Awaitable[str | None]]


_log = structlog.get_logger(__name__)


async def check_running(context: Context) -> None:
    """The process is not stopping."""
    if context.is_stopping():
        raise NotReady("this process is stopping")


async def check_database(context: Context) -> None:
    """The database answers, and has every migration."""
    await context.database.check()


async def check_writes(context: Context) -> None:
    """The database takes writes, and a restart would find them."""
    await context.database.check_writes()


async def check_blocks(context: Context) -> None:
    """The block store takes uploads."""
    await context.check_blocks()


async def check_disk(context: Context) -> None:
    """There is room on the disk of the data directory."""
    try:
        usage = shutil.disk_usage(context.settings.data_dir)
    except OSError as error:
        raise NotReady(f"the data directory cannot be read: {error.strerror}") from error
    least = min(DISK_BYTES_MIN, reserve_of(usage.total) // 2)
    if usage.free < least:
        raise NotReady(f"the disk has less than {least // MIB} MiB free")


async def check_clock(context: Context) -> None:
    """The clock is trusted."""
    if doubt := context.clock.doubt():
        raise NotReady(doubt.reason)


async def note_log(context: Context) -> str | None:
    """Note a frozen or halted transparency log; requests are served regardless."""
    if context.settings.tlog == "off" or (epoch := await store.newest(context.database)) is None:
        return None
    return f"the transparency log is {epoch.state}: {epoch.why}" if epoch.state in {"frozen", "halted"} else None


async def note_disk(context: Context) -> str | None:
    """Note a disk that has only its reserve left."""
    if not context.disk.is_used:
        return None
    return "the disk is almost full: uploads and creates are refused, and only deactivations and log-ins are stored"


CHECKS: Final[tuple[Check, ...]] = (
    check_running, check_database, check_writes, check_disk, check_blocks, check_clock,
)  # fmt: skip
NOTES: Final[tuple[Note, ...]] = (note_log, note_disk)


class Readiness:
    """The checks of one process and their last outcome; frequent calls are cheap."""

    def __init__(self, checks: Sequence[Check] = CHECKS) -> None:
        """Begin without an outcome. `checks` are made in this order."""
        self._checks = checks
        self._checking: asyncio.Task[Unavailable | tuple[str, ...]] | None = None
        self._second_began = float("-inf")
        self._made = 0
        self._logged = ""

    async def check(self, context: Context) -> tuple[str, ...]:
        """Make the checks, or share the outcome of concurrent or very recent ones; raises as they did.

        Returns notes: matters for the operator's attention although requests can be served.
        """
        loop = asyncio.get_running_loop()
        if loop.time() - self._second_began >= 1:
            self._second_began, self._made = loop.time(), 0
        if self._checking is None or (self._checking.done() and self._made < CHECKS_PER_SECOND_MAX):
            self._made += 1
            self._checking = loop.create_task(self._check(context))
        found = await asyncio.shield(self._checking)
        if isinstance(found, Unavailable):
            raise found.with_traceback(None)
        return found

    async def _check(self, context: Context) -> Unavailable | tuple[str, ...]:
        """The reason why the process is not ready, which is logged once, or the notes about a ready one."""
        found: Unavailable | tuple[str, ...] = ()
        try:
            found = await check_readiness(context, self._checks)
        except Unavailable as refusal:
            found = refusal
        logged, self._logged = self._logged, found.detail if isinstance(found, Unavailable) else ""
        if isinstance(found, Unavailable) and self._logged != logged:
            _log.error("not ready", detail=found.detail)
        return found


async def check_readiness(context: Context, checks: Sequence[Check] = CHECKS) -> tuple[str, ...]:
    """Make every check; the first failing one raises. Returns the notes.

    A check that the system prevents has failed too, for instance without a free file descriptor.
    """
    try:
        for check in checks:
            await check(context)
        return tuple([note for each in NOTES if (note := await each(context)) is not None])
    except OSError as error:
        raise NotReady(f"a check failed: {error.strerror or error}") from error
