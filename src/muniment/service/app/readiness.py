"""Readiness checks, in the order in which `/readyz` makes them."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Final

import structlog

from muniment.protocol.errors import NotReady, Unavailable
from muniment.service.context import Context
from muniment.service.resources.log.sequencing import store
from muniment.service.resources.log.sequencing.opening import name_fault
from muniment.service.running.limits.disk import reserve_of
from muniment.service.running.settings import MIB
from muniment.service.storage.probe import Probe

if TYPE_CHECKING:
    from muniment.service.blocks.store import BlockStore

# Below this, deactivations and the write-ahead log may not fit: not ready, before writes fail. A small disk keeps less
# in reserve, and owners must reach the process while that lasts.
DISK_BYTES_MIN: Final = 64 * MIB
# Checks take half a millisecond. More frequent calls get the last outcome.
CHECKS_PER_SECOND_MAX: Final = 50
# Raises `Unavailable`, often a `NotReady`, with the reason when its part is not in order.
Check = Callable[[Context], Awaitable[None]]

_log = structlog.get_logger(__name__)


async def check_running(context: Context) -> None:
    """The process is not stopping."""
    if context.serving.is_stopping():
        raise NotReady("this process is stopping")


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
    """Note a transparency log that is frozen, halted or not named in the settings; requests are served regardless."""
    if (epoch := await store.newest(context.database)) is None:
        return None
    if fault := name_fault(context.settings, epoch):
        return fault
    return f"the transparency log is {epoch.state}: {epoch.why}" if epoch.state in {"frozen", "halted"} else None


def note_disk(context: Context) -> str | None:
    """Note a disk that has only its reserve left."""
    if not context.disk.is_used:
        return None
    return "the disk is almost full: uploads and creates are refused, and only deactivations and log-ins are stored"


def checks_of(blocks: BlockStore) -> tuple[Check, ...]:
    """The readiness checks in their order; the last ones ask the block store `blocks` and the clock."""
    probe = Probe(lambda: asyncio.to_thread(blocks.check), silence="the block store does not answer")
    return (
        check_running, lambda context: context.database.check(), lambda context: context.database.check_writes(),
        check_disk, lambda _: probe.check(), check_clock,
    )  # fmt: skip


class Readiness:
    """The checks of one process and their last outcome; frequent calls are cheap."""

    def __init__(self, checks: Sequence[Check]) -> None:
        """Begin without an outcome. `checks` are made in this order; the first failing one raises."""
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
        """The notes, or the reason why the process is not ready, which is logged once.

        A check that the system prevents has failed too, for instance without a free file descriptor.
        """
        try:
            for check in self._checks:
                await check(context)
            notes = [await note_log(context), note_disk(context)]
        except OSError as error:
            found = NotReady(f"a check failed: {error.strerror or error}")
        except Unavailable as refusal:
            found = refusal
        else:
            self._logged = ""
            return tuple(note for note in notes if note)
        if self._logged != found.detail:
            _log.error("not ready", detail=found.detail)
        self._logged = found.detail
        return found
