"""Whether a process can serve requests: checks, each of one thing, in the order in which `/readyz` makes them."""

from __future__ import annotations

import shutil
from collections.abc import Awaitable, Callable
from typing import Final

from muniment.context import Context
from muniment.errors import NotReady
from muniment.settings import MIB

# Below this a bundle and the write-ahead log may not fit any more: no longer ready, before writes fail.
DISK_BYTES_MIN: Final = 64 * MIB
# Returns when the thing is as it must be. Raises `NotReady`, or what else is `Unavailable`, that says what is wrong.
Check = Callable[[Context], Awaitable[None]]


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
        free = shutil.disk_usage(context.settings.data_dir).free
    except OSError as error:
        raise NotReady(f"the data directory does not answer: {error.strerror}") from error
    if free < DISK_BYTES_MIN:
        raise NotReady(f"the disk has less than {DISK_BYTES_MIN // MIB} MiB left")


async def check_clock(context: Context) -> None:
    """The clock is believed."""
    if doubt := context.clock.doubt():
        raise NotReady(doubt.reason)


CHECKS: Final[tuple[Check, ...]] = (
    check_running, check_database, check_writes, check_disk, check_blocks, check_clock,
)  # fmt: skip


async def check_readiness(context: Context) -> None:
    """Make every check; the first that fails raises.

    A check that the system does not let happen has failed too: without a free file descriptor none gets far.
    """
    for check in CHECKS:
        try:
            await check(context)
        except OSError as error:
            raise NotReady(f"the system refuses a check: {error.strerror or error}") from error
