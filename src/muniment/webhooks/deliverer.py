"""Delivers events to receivers: one process of a registry does it, the others stand by.

State is a cursor for each hook. It is kept in memory and stored about once a second, in a transaction that also renews
the lease: a process that lost it stores nothing. One that is killed loses a second of cursors, so that receivers get
these events twice.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final, get_args

import structlog

from muniment.errors import CursorTooOld, Refusal
from muniment.feed.filters import EVERYTHING
from muniment.feed.reading import newest, read_slice
from muniment.leases import LeaseLostError
from muniment.webhooks import store
from muniment.webhooks.lanes import Lane
from muniment.webhooks.leader import Leader
from muniment.webhooks.places import Places
from muniment.webhooks.schedule import Verdict
from muniment.webhooks.types import WebhookStatus

if TYPE_CHECKING:
    from muniment.context import Context
    from muniment.webhooks.store import Hook

# The pause between two looks at the feed, in which 60 microseconds pass.
_TURN_SECONDS: Final = 0.1
# Cursors are stored at most so often; a hook waits while one of its deliveries is not stored for longer.
_STORED_MS: Final = 1_000
_STORED_MAX: Final = 64
# The lease is renewed at least so often, also when nothing was delivered.
_RENEWED_MS: Final = 4_000
# Hooks are read again so often: people change them.
_READ_SECONDS: Final = 1.0
# The pause between two attempts to become the one that delivers, and between two counts of hooks.
_ASKED_SECONDS: Final = 2.0
_COUNTED_SECONDS: Final = 30.0
# After so many requests, or so long, a hook lets others go first if there are any.
_REQUESTS_PER_RUN: Final = 100
_RUN_MS: Final = 1_000
# The cursors of hooks whose filters match nothing move on too, before the events at their places are removed.
_QUIET_SECONDS: Final = 600.0
_EVENTS_PER_LOOK: Final = 500
_LANES_PER_STEP: Final = 50
_REST_SECONDS: Final = 5.0
_STATUSES: Final[tuple[WebhookStatus, ...]] = get_args(WebhookStatus)

_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Times:
    """When something was done last, by the clock of the event loop in seconds."""

    read_s: float = float("-inf")
    quiet_s: float = 0.0


@dataclass(slots=True, eq=False)
class Deliverer:
    """Delivers the events of a registry until cancelled."""

    context: Context
    _leader: Leader = field(init=False)
    _lanes: dict[bytes, Lane] = field(default_factory=dict[bytes, Lane], init=False)
    _places: Places = field(init=False)
    _tasks: dict[Lane, asyncio.Task[None]] = field(default_factory=dict["Lane", "asyncio.Task[None]"], init=False)
    # Lanes know of the events up to this number, in this epoch.
    _tail_seq: int = field(default=0, init=False)
    _epoch: int | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        """Begin as one that stands by."""
        self._leader = Leader(self.context, self.context.random_bytes(16).hex())
        self._places = Places(self.context.clock.monotonic_ms)
        for verdict in Verdict:  # only a counter that was 0 can be seen to rise
            self.context.metrics.counter("webhook_attempts_total", outcome=verdict.value)

    async def run(self) -> None:
        """Deliver while this process holds the lease, and stand by otherwise."""
        loop, counted_s = asyncio.get_running_loop(), float("-inf")
        while True:
            try:
                if loop.time() - counted_s >= _COUNTED_SECONDS:
                    counted_s = loop.time()
                    await self._count()
                if await self._active() and await self._leader.take():
                    await self._lead()
            except LeaseLostError:
                _log.warning("another process delivers to webhooks now")
            except Exception as error:  # noqa: BLE001 - a task that ended would not come back, and the cause may pass
                detail = error.detail if isinstance(error, Refusal) else str(error)
                _log.warning("cannot deliver to webhooks", error=type(error).__name__, detail=detail)
                await asyncio.sleep(_REST_SECONDS)
            await asyncio.sleep(_ASKED_SECONDS)

    async def _lead(self) -> None:
        """Deliver until no hook is active. Raises `LeaseLostError`, `Refusal`."""
        loop, times = asyncio.get_running_loop(), _Times(quiet_s=asyncio.get_running_loop().time())
        self._epoch = None
        counted_s = float("-inf")
        _log.info("delivering to webhooks")
        try:
            while True:
                is_replaced = any(lane.is_stale and lane.is_done for lane in self._lanes.values())
                if is_replaced or loop.time() - times.read_s >= _READ_SECONDS:
                    times.read_s = loop.time()
                    await self._read_hooks()
                    if not self._lanes:
                        return
                if loop.time() - times.quiet_s >= _QUIET_SECONDS:
                    times.quiet_s = loop.time()
                    self._places.forget_quick()
                    for lane in self._lanes.values():
                        lane.touch()
                if loop.time() - counted_s >= _COUNTED_SECONDS:
                    counted_s = loop.time()
                    await self._count()
                await self._look()
                self._start()
                await self._store()
                await asyncio.sleep(_TURN_SECONDS)
        finally:
            await self._stop()

    async def _stop(self) -> None:
        """End all requests, store what was done, and give up the lease."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        try:
            await self._store(is_last=True)
        except (LeaseLostError, Refusal):  # another process begins where this one stored last
            pass
        finally:
            self._lanes.clear()
            self.context.metrics.gauge("webhook_backlog_seconds").forget()
            await self._leader.release()

    async def _active(self) -> list[Hook]:
        """The hooks to deliver to. Those of wallets stand still while the setting does not let wallets have any."""
        active = await store.active(self.context.database)
        return [hook for hook in active if hook.owner is None or self.context.settings.webhooks == "users"]

    async def _read_hooks(self) -> None:
        """Take up hooks that were added or changed by people, and leave those that are not active any more.

        A lane whose hook was changed is replaced when all that it did was stored before the hook was read again.
        """
        done = {hook_id for hook_id, lane in self._lanes.items() if lane.is_done}
        found = {hook.id: hook for hook in await self._active()}
        for hook_id, lane in list(self._lanes.items()):
            hook = found.get(hook_id)
            if hook is None or hook.turn != lane.hook.turn:
                lane.is_stale = True
            if lane.is_stale and hook_id in done:
                del self._lanes[hook_id]
        for hook_id, hook in found.items():
            if hook_id not in self._lanes:
                self._lanes[hook_id] = Lane(self.context, hook)

    async def _look(self) -> None:
        """Tell hooks about the events that came since the last look."""
        database = self.context.database
        epoch, piece = await self.context.epochs.number(database), None
        if epoch == self._epoch:
            with suppress(CursorTooOld):  # this process stood still for days
                piece = await read_slice(database, self._tail_seq, EVERYTHING, _EVENTS_PER_LOOK)
        if piece is None:
            self._epoch, self._tail_seq = epoch, await newest(database)
            for lane in self._lanes.values():
                lane.has_pending = True
            return
        self._tail_seq = piece.last_seq
        if not piece.events:
            return
        for index, lane in enumerate(list(self._lanes.values())):
            lane.pass_by(piece.events, piece.last_seq)
            if index % _LANES_PER_STEP == _LANES_PER_STEP - 1:
                await asyncio.sleep(0)

    def _start(self) -> None:
        """Begin to send to hooks that have events, the one that waits longest first.

        A request that has become slow, and finds no place among the slow ones, ends and begins there again.
        """
        for lane in self._places.note_slow():
            self._tasks[lane].cancel()
        now_ms = self.context.now_ms()
        ready = sorted((lane for lane in self._lanes.values() if lane.may_run(now_ms)), key=lambda lane: lane.ran_at)
        for lane in self._places.take(ready):
            lane.is_running = True
            self._tasks[lane] = task = asyncio.create_task(self._run(lane))
            task.add_done_callback(partial(self._ended, lane))

    def _ended(self, lane: Lane, task: asyncio.Task[None]) -> None:
        del task
        del self._tasks[lane]
        self._places.leave(lane)
        lane.is_running = False
        lane.ran_at = self.context.clock.monotonic_ms()

    async def _run(self, lane: Lane) -> None:
        """Send to one hook: some requests, one after the other, while it may keep its place."""
        clock = self.context.clock
        began_ms = clock.monotonic_ms()
        try:
            for _ in range(_REQUESTS_PER_RUN):
                while not self._may_send(lane):
                    if lane.is_ended:
                        return
                    await asyncio.sleep(_TURN_SECONDS / 10)
                if lane.is_ended or not await lane.deliver_next() or not self._places.may_keep(lane):
                    return
                if self._places.is_short and clock.monotonic_ms() - began_ms >= _RUN_MS:
                    return
        except Exception as error:  # noqa: BLE001 - an error at one hook must not stop the others, and may pass
            detail = error.detail if isinstance(error, Refusal) else ""
            _log.error("cannot deliver to a webhook", error=type(error).__name__, detail=detail)
            await asyncio.sleep(_REST_SECONDS)

    def _may_send(self, lane: Lane) -> bool:
        """Whether the lease is held for sure, and a crash now would repeat a second of deliveries at most."""
        since_ms = lane.unstored_since_ms
        is_stored = since_ms is None or self.context.clock.monotonic_ms() - since_ms < _STORED_MS
        return self._leader.may_send and is_stored

    async def _store(self, *, is_last: bool = False) -> None:
        """Store what was delivered, if it is time. Raises `LeaseLostError`, `Refusal`."""
        at_ms, age_ms = self.context.clock.monotonic_ms(), self._leader.age_ms
        changed = [lane for lane in self._lanes.values() if lane.unstored_since_ms is not None]
        if not is_last and age_ms < (_STORED_MS if changed else _RENEWED_MS):
            return
        while True:
            some, changed = changed[:_STORED_MAX], changed[_STORED_MAX:]
            progress = [lane.progress() for lane in some]
            stored = await self._leader.store(progress)
            for lane, before, after in zip(some, progress, stored, strict=True):
                lane.stored(before, after, at_ms)
            if not changed:
                break
        self._show_backlog()

    def _show_backlog(self) -> None:
        """How long events wait for receivers that answer: what this service is late by."""
        now_ms, working = self.context.now_ms(), [lane for lane in self._lanes.values() if not lane.hook.failures]
        waits_ms = [now_ms - lane.waiting_since_ms for lane in working if lane.waiting_since_ms is not None]
        self.context.metrics.gauge("webhook_backlog_seconds").set(max([0, *waits_ms]) / 1000)

    async def _count(self) -> None:
        counts = await store.count_by_status(self.context.database)
        for status in _STATUSES:
            self.context.metrics.gauge("webhooks", status=status).set(counts.get(status, 0))
