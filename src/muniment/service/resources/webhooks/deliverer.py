"""Delivers events to receivers: one process of a registry does it, the others stand by.

State is a cursor for each hook. It is kept in memory and stored about once a second, in a transaction that also renews
the lease: a process that lost the lease stores nothing. A process that is killed loses a second of cursors, so that
receivers get these events twice.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Final, get_args
from urllib.parse import urlsplit

import structlog

from muniment.protocol.errors import CursorTooOld, Refusal
from muniment.service.resources.feed.events import EVERYTHING, Position
from muniment.service.resources.feed.reading import check_position, floor, newest, read_slice, source_of
from muniment.service.resources.webhooks import store
from muniment.service.resources.webhooks.hook_state import BATCH_EVENTS_MAX, Delivery, HookState, Verdict, is_due, judge
from muniment.service.resources.webhooks.sending import Slots, send, signers_of
from muniment.service.resources.webhooks.types import DEAD_LETTERS_MAX, RETIRED, WebhookId, WebhookStatus
from muniment.service.storage.leases import Lease, LeaseLostError

if TYPE_CHECKING:
    from muniment.service.context import Context
    from muniment.service.resources.feed.events import Event, Source
    from muniment.service.resources.webhooks.store import Hook
    from muniment.service.storage.database import Transaction

LEASE: Final = Lease("webhooks", 15_000)
# No request begins with an older lease: a connection takes up to five seconds, then another process may hold the lease.
_SENDS_MS_MAX: Final = 9_000
# The pause between two looks at the feed.
_LOOK_SECONDS: Final = 0.1
# Cursors are stored at most this often; a hook waits while one of its deliveries is unstored for longer.
_STORED_MS: Final = 1_000
_STORED_MAX: Final = 64
# The lease is renewed at least this often, also without deliveries.
_RENEWED_MS: Final = 4_000
# The pause between two reads of the hooks, which people change.
_READ_SECONDS: Final = 1.0
# The pause between two attempts to take the lease, and between two counts of hooks.
_ASKED_SECONDS: Final = 2.0
_COUNTED_SECONDS: Final = 30.0
# After this many requests, or this long, a hook lets waiting hooks go first.
_REQUESTS_PER_RUN: Final = 100
_RUN_MS: Final = 1_000
# The cursors of hooks whose filters match nothing are stored too, before the events at their cursors are removed.
_QUIET_SECONDS: Final = 600.0
_EVENTS_PER_LOOK: Final = 500
_HOOKS_PER_STEP: Final = 50
_REST_SECONDS: Final = 5.0
_STATUSES: Final[tuple[WebhookStatus, ...]] = get_args(WebhookStatus)
REFUSED_OFTEN: Final = f"the receiver has refused {DEAD_LETTERS_MAX} events"

_log = structlog.get_logger(__name__)


@dataclass(slots=True, eq=False)
class ActiveHook:
    """A hook in the memory of the deliverer: its state, its next events, and its request."""

    state: HookState
    # Whether there may be an event to send; the feed is read to find out.
    has_pending: bool = True
    # A person changed or removed the hook: nothing more is sent. The cursor is stored, then the hook is read again.
    is_stale: bool = False
    is_running: bool = False
    ran_at: int = 0
    # By the monotonic clock: when the request began; None: there is no request.
    sends_since_ms: int | None = None
    # The time of the next event to send; None: every event was delivered.
    waiting_since_ms: int | None = None
    # By the monotonic clock: when the first unstored change happened.
    unstored_since_ms: int | None = None
    events: deque[Event] = field(default_factory=deque["Event"])
    # The epoch in which the cursor was checked; the events and the reset are of this epoch.
    epoch: int | None = None
    reset: Delivery | None = None

    @property
    def hook(self) -> Hook:
        """The hook as it is now."""
        return self.state.hook

    @property
    def host(self) -> str:
        """The host of the receiver."""
        return (urlsplit(self.hook.url).hostname or "").lower()

    @property
    def is_done(self) -> bool:
        """Whether no request is under way, and every change is stored."""
        return not self.is_running and self.unstored_since_ms is None

    @property
    def is_ended(self) -> bool:
        """Whether no more requests begin."""
        return self.is_stale or self.hook.status != "active"

    def may_run(self, now_ms: int) -> bool:
        """Whether a request may begin."""
        return self.has_pending and not self.is_running and not self.is_ended and is_due(self.hook, now_ms)

    def note_events(self, events: list[Event], last_seq: int) -> None:
        """Note new events of the feed, up to `last_seq`."""
        if self.has_pending and not self.is_running:
            return
        wanted = self.hook.wanted
        if first := next((event for event in events if wanted.matches(event)), None):
            self.has_pending = True
            if self.waiting_since_ms is None:
                self.waiting_since_ms = first.at_ms
        elif not self.is_running:
            self.state = self.state.at(last_seq)

    def note_stored(self, before: HookState, row: Hook | None, at_ms: int) -> None:
        """Forget what was stored at `at_ms`: `before`. `row` is the hook now; None: a person has changed it."""
        if row is None:
            self.is_stale = True
        elif row.status != before.hook.status:
            self.state = self.state.ended(row.status, row.reason)
            self.log("webhook is disabled", reason=row.reason)
        self.state = self.state.without(before)
        self.unstored_since_ms = None if self.hook in (before.hook, row) else at_ms

    def log(self, text: str, **about: object) -> None:
        """Write a warning about the hook."""
        _log.warning(text, hook=WebhookId.from_raw(self.hook.id), **about)


@dataclass(slots=True, eq=False)
class Deliverer:
    """Delivers the events of a registry until cancelled."""

    context: Context
    _holder: str = field(init=False)
    # When the lease was renewed, by a clock that also runs while this process is stopped.
    _renewed_at_ms: int = field(default=-(10**15), init=False)
    _hooks: dict[bytes, ActiveHook] = field(default_factory=dict[bytes, ActiveHook], init=False)
    _slots: Slots[ActiveHook] = field(init=False)
    _tasks: dict[ActiveHook, asyncio.Task[None]] = field(
        default_factory=dict["ActiveHook", "asyncio.Task[None]"], init=False
    )
    # The hooks have noted the events up to this number, in this epoch.
    _tail_seq: int = field(default=0, init=False)
    _epoch: int | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        """Begin as a process that stands by."""
        self._holder = self.context.random_bytes(16).hex()
        self._slots = Slots(self.context.clock.monotonic_ms)
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
                if await store.active(self.context.database) and await self._take_lease():
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
        loop = asyncio.get_running_loop()
        read_s, quiet_s, counted_s = float("-inf"), loop.time(), float("-inf")
        self._epoch = None
        _log.info("delivering to webhooks")
        try:
            while True:
                is_replaced = any(each.is_stale and each.is_done for each in self._hooks.values())
                if is_replaced or loop.time() - read_s >= _READ_SECONDS:
                    read_s = loop.time()
                    await self._read_hooks()
                    if not self._hooks:
                        return
                if loop.time() - quiet_s >= _QUIET_SECONDS:
                    quiet_s = loop.time()
                    self._slots.forget_quick()
                    for each in self._hooks.values():
                        self._touch(each)
                if loop.time() - counted_s >= _COUNTED_SECONDS:
                    counted_s = loop.time()
                    await self._count()
                await self._look()
                self._start()
                await self._store()
                await asyncio.sleep(_LOOK_SECONDS)
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
            self._hooks.clear()
            self.context.metrics.gauge("webhook_backlog_seconds").forget()
            self._renewed_at_ms = -(10**15)
            with suppress(Refusal):  # the lease expires by itself
                await self.context.database.write(lambda tx: LEASE.release(tx, self._holder))

    async def _read_hooks(self) -> None:
        """Begin with hooks that people added or changed, and drop those that are no longer active.

        A changed hook is replaced only if every change of its state was stored before this read.
        """
        done = {hook_id for hook_id, each in self._hooks.items() if each.is_done}
        found = {hook.id: hook for hook in await store.active(self.context.database)}
        for hook_id, active in list(self._hooks.items()):
            hook = found.get(hook_id)
            if hook is None or hook.revision != active.hook.revision:
                active.is_stale = True
            if active.is_stale and hook_id in done:
                del self._hooks[hook_id]
        for hook_id, hook in found.items():
            if hook_id not in self._hooks:
                self._hooks[hook_id] = ActiveHook(HookState(hook))

    async def _look(self) -> None:
        """Pass the events since the last look to the hooks."""
        database = self.context.database
        epoch, piece = await self.context.epochs.number(database), None
        if epoch == self._epoch:
            with suppress(CursorTooOld):  # this process stood still for days
                piece = await read_slice(database, self._tail_seq, EVERYTHING, _EVENTS_PER_LOOK)
        if piece is None:
            self._epoch, self._tail_seq = epoch, await newest(database)
            for each in self._hooks.values():
                each.has_pending = True
            return
        self._tail_seq = piece.last_seq
        if not piece.events:
            return
        for index, each in enumerate(list(self._hooks.values())):
            each.note_events(piece.events, piece.last_seq)
            if index % _HOOKS_PER_STEP == _HOOKS_PER_STEP - 1:
                await asyncio.sleep(0)

    def _start(self) -> None:
        """Begin requests for hooks with pending events, the longest wait first.

        A request that has become slow, and finds no slow slot, is cancelled and begins again later.
        """
        for slow in self._slots.note_slow():
            self._tasks[slow].cancel()
        now_ms = self.context.clock.now_ms()
        ready = sorted((each for each in self._hooks.values() if each.may_run(now_ms)), key=lambda each: each.ran_at)
        for active in self._slots.take(ready):
            active.is_running = True
            self._tasks[active] = task = asyncio.create_task(self._run(active))
            task.add_done_callback(partial(self._ended, active))

    def _ended(self, active: ActiveHook, task: asyncio.Task[None]) -> None:
        del task
        del self._tasks[active]
        self._slots.leave(active)
        active.is_running = False
        active.ran_at = self.context.clock.monotonic_ms()

    async def _run(self, active: ActiveHook) -> None:
        """Send to one hook, request after request, while it may keep its slot."""
        clock = self.context.clock
        began_ms = clock.monotonic_ms()
        try:
            for _ in range(_REQUESTS_PER_RUN):
                while not self._may_send(active):
                    if active.is_ended:
                        return
                    await asyncio.sleep(_LOOK_SECONDS / 10)
                if active.is_ended or not await self.deliver_next(active) or not self._slots.may_keep(active):
                    return
                if self._slots.is_short and clock.monotonic_ms() - began_ms >= _RUN_MS:
                    return
        except Exception as error:  # noqa: BLE001 - an error at one hook must not stop the others, and may pass
            detail = error.detail if isinstance(error, Refusal) else ""
            _log.error("cannot deliver to a webhook", error=type(error).__name__, detail=detail)
            await asyncio.sleep(_REST_SECONDS)

    def _may_send(self, active: ActiveHook) -> bool:
        """Whether no other process can hold the lease, and a crash now would repeat at most a second of deliveries."""
        since_ms = active.unstored_since_ms
        is_stored = since_ms is None or self.context.clock.monotonic_ms() - since_ms < _STORED_MS
        return self._lease_age_ms < _SENDS_MS_MAX and is_stored

    async def deliver_next(self, active: ActiveHook) -> bool:
        """Send the next request of a hook; returns whether another may follow at once. Raises `Unavailable`."""
        context = self.context
        delivery = await self._next_delivery(active)
        active.waiting_since_ms = None if delivery is None else delivery.at_ms
        if delivery is None:
            return False
        signers = signers_of(context.secrets(), active.hook, context.clock.now_ms())
        if signers is None:
            active.state = active.state.ended("suspended", RETIRED)
            active.log("webhook is suspended", reason=RETIRED)
            self._touch(active)
            return False
        active.sends_since_ms = context.clock.monotonic_ms()
        try:
            sent = await send(context, active.hook, signers, delivery.message_id, delivery.body, delivery.media_type)
        finally:
            active.sends_since_ms = None
        before, is_trusted = active.state, context.clock.doubt() is None
        chance = context.random_bytes(1)[0] / 255
        active.state = before.after(delivery, sent, context.clock.now_ms(), chance, is_clock_trusted=is_trusted)
        if active.state.is_past(delivery):
            for _ in range(delivery.events):
                active.events.popleft()
            active.reset = None
        context.metrics.counter("webhook_attempts_total", outcome=judge(sent).value).add()
        self._touch(active)
        after = active.hook
        if len(active.state.dead_letters) > len(before.dead_letters):
            active.log("event moved to dead letters", outcome=sent.outcome)
        if after.status != "active":
            active.log("webhook is disabled", reason=after.reason)
        elif after.failures and not before.hook.failures:
            active.log("webhook fails", outcome=sent.outcome)
        return after.status == "active" and after.failures == 0

    async def _next_delivery(self, active: ActiveHook) -> Delivery | None:
        """The next request of a hook; None: every event was delivered."""
        context, database = self.context, self.context.database
        source = await source_of(context, database)
        try:
            if active.epoch != source.epoch:
                active.reset = None
                active.events.clear()
                await check_position(context, database, Position.at(active.hook.epoch, active.hook.seq))
                active.epoch = source.epoch
            while not active.events and active.reset is None:
                active.has_pending = False  # an event that is committed during the read sets it again
                piece = await read_slice(database, active.hook.seq, active.hook.wanted, BATCH_EVENTS_MAX)
                active.events.extend(piece.events)
                active.has_pending |= bool(piece.events) or not piece.is_caught_up
                if not piece.events:
                    active.state = active.state.at(piece.last_seq)
                    if piece.is_caught_up:
                        return None
        except CursorTooOld:
            active.has_pending = True
            active.reset = await self._make_reset(active.hook, source)
            active.epoch = source.epoch  # only now: an error before it must not leave out the reset
        except Exception:
            active.has_pending = True  # the events of the failed read are still to be read
            raise
        return active.reset or Delivery.of_events(active.hook, active.events, source)

    async def _make_reset(self, hook: Hook, source: Source) -> Delivery:
        database = self.context.database
        floor_seq = await floor(database)
        is_same_epoch = hook.epoch == source.epoch and hook.seq < floor_seq
        seq = floor_seq if is_same_epoch else await newest(database)
        return Delivery.of_reset(hook, source, seq, self.context.clock.now_ms())

    def _touch(self, active: ActiveHook) -> None:
        """Have the hook stored soon."""
        if active.unstored_since_ms is None:
            active.unstored_since_ms = self.context.clock.monotonic_ms()

    @property
    def _lease_age_ms(self) -> int:
        return self.context.clock.monotonic_ms() - self._renewed_at_ms

    async def _take_lease(self) -> bool:
        """Whether this process holds the lease now. Raises `Unavailable`."""
        context, began_ms = self.context, self.context.clock.monotonic_ms()
        if not await LEASE.is_free(context.database, context.clock.now_ms()):
            return False
        if not await context.database.write(lambda tx: LEASE.take(tx, self._holder, context.clock.now_ms())):
            return False
        self._renewed_at_ms = began_ms
        return True

    async def _store(self, *, is_last: bool = False) -> None:
        """Store deliveries and renew the lease, if it is time. Raises `LeaseLostError`, `Refusal`."""
        at_ms = self.context.clock.monotonic_ms()
        changed = [each for each in self._hooks.values() if each.unstored_since_ms is not None]
        if not is_last and self._lease_age_ms < (_STORED_MS if changed else _RENEWED_MS):
            return
        changed.sort(key=lambda each: each.hook.id)  # every writer locks hooks in this order
        while True:
            some, changed = changed[:_STORED_MAX], changed[_STORED_MAX:]
            states = [each.state for each in some]
            for active, before, row in zip(some, states, await self._store_states(states), strict=True):
                active.note_stored(before, row, at_ms)
            if not changed:
                break
        self._show_backlog()

    async def _store_states(self, states: list[HookState]) -> list[Hook | None]:
        """Renew the lease and store `states`; the hooks as stored, None where a person changed one meanwhile.

        Raises `LeaseLostError`: then nothing is stored.
        """
        began_ms = self.context.clock.monotonic_ms()

        async def write(tx: Transaction) -> list[Hook | None]:
            await LEASE.renew(tx, self._holder, self.context.clock.now_ms())
            return [await _store_state(tx, state) for state in states]

        stored = await self.context.database.write(write, urgent=True)
        self._renewed_at_ms = began_ms
        return stored

    def _show_backlog(self) -> None:
        """Report how long events wait for receivers that answer: the delay that this service causes."""
        now_ms, working = self.context.clock.now_ms(), [each for each in self._hooks.values() if not each.hook.failures]
        waits_ms = [now_ms - each.waiting_since_ms for each in working if each.waiting_since_ms is not None]
        self.context.metrics.gauge("webhook_backlog_seconds").set(max([0, *waits_ms]) / 1000)

    async def _count(self) -> None:
        counts = await store.count_by_status(self.context.database)
        for status in _STATUSES:
            self.context.metrics.gauge("webhooks", status=status).set(counts.get(status, 0))


async def _store_state(tx: Transaction, state: HookState) -> Hook | None:
    """Store a state; of a hook that a person changed only cursor and history, and nothing if it was redirected."""
    hook = state.hook
    is_unchanged = await store.store_progress(tx, hook)
    if not is_unchanged and not await store.store_cursor(tx, hook):
        return None
    await store.add_attempts(tx, hook.id, state.attempts)
    count = 0
    for letter in state.dead_letters:
        count = await store.add_dead_letter(tx, hook.id, letter)
    if not is_unchanged:
        return None
    if count >= DEAD_LETTERS_MAX and hook.status == "active":
        hook = replace(hook, status="disabled", reason=REFUSED_OFTEN)
        await store.store_progress(tx, hook)
    return hook
