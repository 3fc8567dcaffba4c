"""The workers of a serving process: each takes a bundle that is due, and gives it to the node.

Retries never end. A bundle that fails waits longer each time, up to an hour. When the node itself cannot be used, the
bundles keep their place and the worker rests, at most half a minute: after an outage everything goes on within that.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import structlog

from muniment.outgoing import Outgoing
from muniment.protocol.errors import Refusal
from muniment.service.pins import queue
from muniment.service.pins.answers import PinFailed
from muniment.service.pins.node import IMPORT_SECONDS_MAX, LOOK_SECONDS_MAX, Node, NodeFailed

if TYPE_CHECKING:
    from collections.abc import Callable

    from muniment.service.context import Context
    from muniment.service.pins.queue import Taken


@dataclass(frozen=True, slots=True, kw_only=True)
class PinLimits:
    """The limits of the workers of one process."""

    # Bundles that a process sends concurrently: one that is slow does not hold up all others.
    workers: int = 2
    # The pause when no bundle is due: as long as an upload waits for its pin.
    idle_seconds: float = 2.0
    # The pause after the node could not be used, doubled each time.
    rest_seconds: float = 1.0
    rest_seconds_max: float = 30.0
    # The pause between two attempts with one bundle, doubled each time.
    wait_ms: int = 2_000
    wait_ms_max: int = queue.WAIT_MS_MAX
    look_seconds_max: float = LOOK_SECONDS_MAX
    import_seconds_max: float = IMPORT_SECONDS_MAX
    # For how long a bundle is taken: for its two requests, and for the writes of a busy database.
    lease_ms: int = int((LOOK_SECONDS_MAX + IMPORT_SECONDS_MAX) * 1000) + 50_000
    # The pause between two searches for bundles that are not in the queue.
    search_seconds: float = 3_600.0
    # The pause between two counts of the bundles that wait.
    count_seconds: float = 30.0


PIN_LIMITS: Final = PinLimits()

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Pinner:
    """Pins the bundles of a registry at the node of its settings, until cancelled.

    `on_count` gets the number of waiting bundles, periodically.
    """

    context: Context
    limits: PinLimits = PIN_LIMITS
    on_count: Callable[[int], None] | None = None

    async def run(self) -> None:
        """Work until cancelled. The operator named the node, so it may be at a private or loopback address."""
        settings, limits = self.context.settings, self.limits
        async with Outgoing(allow_private=True) as outgoing, asyncio.TaskGroup() as group:
            node = Node(
                outgoing=outgoing, url=settings.ipfs_pin_url, authorization=settings.ipfs_pin_authorization,
                look_seconds_max=limits.look_seconds_max, import_seconds_max=limits.import_seconds_max,
            )  # fmt: skip
            group.create_task(self._search())
            group.create_task(self._count())
            for _ in range(limits.workers):
                group.create_task(self._work(node))

    async def _search(self) -> None:
        """Periodically add the bundles that are not in the queue."""
        while True:
            seconds = self.limits.search_seconds
            try:
                if added := await queue.add_missing(self.context.database, self.context.now_ms()):
                    _log.info("bundles added to the queue of pins", count=added)
            except Exception as error:  # noqa: BLE001 - one of these tasks that ended would end all of them
                _log.warning("cannot look for bundles to pin", error=type(error).__name__, detail=str(error))
                seconds = self.limits.rest_seconds_max
            await asyncio.sleep(seconds)

    async def _count(self) -> None:
        """Periodically report the number of waiting bundles."""
        while True:
            try:
                waiting = await queue.count_waiting(self.context.database)
            except Exception as error:  # noqa: BLE001 - as above
                _log.warning("cannot count the bundles to pin", error=type(error).__name__, detail=str(error))
            else:
                if waiting:
                    _log.info("bundles wait to be pinned", count=waiting)
                if self.on_count is not None:
                    self.on_count(waiting)
            await asyncio.sleep(self.limits.count_seconds)

    async def _work(self, node: Node) -> None:
        """Pin bundles, one after the other."""
        failures = 0
        while True:
            try:
                is_idle = self.context.clock.doubt() is not None or not await self._pin_next(node)
            except Exception as error:  # noqa: BLE001 - a worker that ended would not come back
                failures += 1
                seconds = self._jittered(self.limits.rest_seconds, self.limits.rest_seconds_max, failures)
                _log.warning(
                    "no bundle can be pinned now", error=type(error).__name__, detail=str(error),
                    rests_s=round(seconds, 1),
                )  # fmt: skip
                await asyncio.sleep(seconds)
                continue
            failures = 0
            if is_idle:
                await asyncio.sleep(self._jittered(self.limits.idle_seconds, self.limits.idle_seconds, 1))

    async def _pin_next(self, node: Node) -> bool:
        """Pin the bundle that is due first; whether any was due. Raises `NodeFailed`, `Unavailable`."""
        context = self.context
        taken = await queue.take(context.database, context.now_ms(), self.limits.lease_ms)
        if taken is None:
            return False
        try:
            if not await node.has_pinned(taken.cid.parts):
                await node.pin(taken.cid.parts, context.blocks.get)
        except NodeFailed as error:
            now_ms = context.now_ms()
            await queue.give_back(context.database, taken, now_ms, taken.failures, str(error))
            raise
        except PinFailed as error:
            await self._put_off(taken, str(error))
        except Refusal as refusal:  # the blocks are damaged, lost, or cannot be read now
            await self._put_off(taken, f"{refusal.code}: {refusal.detail}")
        except asyncio.CancelledError:  # the process stops: another process need not wait for the end of the lease
            with suppress(Refusal):
                await queue.release(context.database, taken, context.now_ms())
            raise
        else:
            await queue.finish(context.database, taken, context.now_ms())
            _log.info("pinned", cid=taken.cid)
        return True

    async def _put_off(self, taken: Taken, error: str) -> None:
        """Try the bundle again later."""
        failures = taken.failures + 1
        wait_ms = int(self._jittered(self.limits.wait_ms, self.limits.wait_ms_max, failures))
        due_at_ms = self.context.now_ms() + wait_ms
        await queue.give_back(self.context.database, taken, due_at_ms, failures, error)
        _log.warning("not pinned", cid=taken.cid, detail=error, failures=failures, waits_s=round(wait_ms / 1000))

    def _jittered(self, first: float, most: float, failures: int) -> float:
        """A pause that doubles with each failure, less a random part of up to half (jitter)."""
        chance = int.from_bytes(self.context.random_bytes(4)) / 2**32
        return min(most, first * 2.0 ** min(failures - 1, 32)) * (1 - chance / 2)
