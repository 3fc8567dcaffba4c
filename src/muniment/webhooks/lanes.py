"""One hook in the memory of the process that delivers: its events in order, one request at a time."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import structlog

from muniment.errors import CursorTooOld
from muniment.feed.events import encode_event
from muniment.feed.position import Position
from muniment.feed.reading import check_position, floor, newest, read_slice, source_of
from muniment.webhooks import schedule
from muniment.webhooks.history import Attempt, DeadLetter
from muniment.webhooks.keys import signers_of
from muniment.webhooks.leader import Progress
from muniment.webhooks.managing import RETIRED
from muniment.webhooks.schedule import Verdict
from muniment.webhooks.sending import BATCH, SINGLE, Sent, send
from muniment.webhooks.types import WebhookId
from muniment.wire import encode, iso_time

if TYPE_CHECKING:
    from muniment.context import Context
    from muniment.feed.events import Event, Source
    from muniment.webhooks.keys import Signers
    from muniment.webhooks.store import Hook

# Events of one request to a hook with `batch`, and the bytes of its body, which small servers still take.
BATCH_EVENTS_MAX: Final = 100
BATCH_BYTES_MAX: Final = 256 * 1024
# The type of the event that says that others are missing.
RESET_TYPE: Final = "muniment.feed.reset"
_REMOVED: Final = "events behind your last one were removed: read what you follow again"

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Parcel:
    """The body of a request. When it was delivered, the cursor is `epoch` and `seq`."""

    message_id: str
    body: bytes
    media_type: str
    epoch: int
    seq: int
    at_ms: int
    # How many events of the queue it has; 0: it is a reset.
    events: int


@dataclass(slots=True, eq=False)
class Lane:
    """A hook, what is known of its next events, and what was not stored yet."""

    context: Context
    hook: Hook
    # Whether there may be an event to send; the feed is read to find out.
    has_pending: bool = True
    # A person has changed or removed the hook: nothing more is sent with what is known here. The cursor is stored, then
    # another lane takes its place.
    is_stale: bool = False
    is_running: bool = False
    ran_at: int = 0
    # By the monotonic clock: since when the receiver has been asked; None: it is not.
    sends_since_ms: int | None = None
    # The time of the event that is sent next; None: there is none.
    waiting_since_ms: int | None = None
    # By the monotonic clock: when the first change happened that is not stored.
    unstored_since_ms: int | None = None
    _attempts: list[Attempt] = field(default_factory=list[Attempt])
    _letters: list[DeadLetter] = field(default_factory=list[DeadLetter])
    _events: deque[Event] = field(default_factory=deque["Event"])
    # The epoch in which the cursor was checked; the events and the reset are of this epoch.
    _epoch: int | None = None
    _reset: Parcel | None = None

    @property
    def host(self) -> str:
        """The host of the receiver."""
        return (urlsplit(self.hook.url).hostname or "").lower()

    @property
    def is_done(self) -> bool:
        """Whether no request is on its way, and all that came of earlier ones is stored."""
        return not self.is_running and self.unstored_since_ms is None

    @property
    def is_ended(self) -> bool:
        """Whether nothing more is sent from here."""
        return self.is_stale or self.hook.status != "active"

    def may_run(self, now_ms: int) -> bool:
        """Whether a request may begin."""
        is_free = self.has_pending and not self.is_running and not self.is_ended
        return is_free and schedule.is_due(self.hook, now_ms)

    def pass_by(self, events: list[Event], last_seq: int) -> None:
        """Note events of the feed up to `last_seq`, all behind those that were noted before."""
        if self.has_pending and not self.is_running:
            return
        wanted = self.hook.wanted
        if first := next((event for event in events if wanted.matches(event)), None):
            self.has_pending = True
            if self.waiting_since_ms is None:
                self.waiting_since_ms = first.at_ms
        elif not self.is_running and last_seq > self.hook.seq:
            self.hook = replace(self.hook, seq=last_seq)

    def touch(self) -> None:
        """Have the hook stored soon."""
        if self.unstored_since_ms is None:
            self.unstored_since_ms = self.context.clock.monotonic_ms()

    def progress(self) -> Progress:
        """What is to be stored now."""
        return Progress(self.hook, list(self._attempts), list(self._letters))

    def stored(self, before: Progress, after: Hook | None, at_ms: int) -> None:
        """Forget what was stored; `at_ms` is when `before` was taken, `after` what the row has now.

        None: a person has changed the row.
        """
        if after is None:
            self.is_stale = True
        elif after.status != before.hook.status:
            self.hook = replace(self.hook, status=after.status, reason=after.reason)
            self._log("webhook is disabled", reason=after.reason)
        kept = len(before.attempts)
        del self._attempts[:kept]
        del self._letters[: len(before.letters)]
        self.unstored_since_ms = None if self.hook in (before.hook, after) else at_ms

    async def deliver_next(self) -> bool:
        """Send the next request; whether another one may follow at once.

        Raises `Refusal` when the database does not answer.
        """
        parcel = await self._next_parcel()
        if parcel is None:
            self.waiting_since_ms = None
            return False
        context = self.context
        signers = signers_of(context.secrets(), self.hook, context.now_ms())
        if signers is None:
            self.hook = replace(self.hook, status="suspended", reason=RETIRED)
            self._log("webhook is suspended", reason=RETIRED)
            self.touch()
            return False
        self.waiting_since_ms = parcel.at_ms
        return await self._send(parcel, signers)

    async def _send(self, parcel: Parcel, signers: Signers) -> bool:
        context = self.context
        self.sends_since_ms = context.clock.monotonic_ms()
        try:
            sent = await send(context, self.hook, signers, parcel.message_id, parcel.body, parcel.media_type)
        finally:
            self.sends_since_ms = None
        verdict, now_ms = schedule.judge(sent), context.now_ms()
        context.metrics.counter("webhook_attempts_total", outcome=verdict.value).add()
        attempt = Attempt(now_ms, parcel.epoch, parcel.seq, sent.status, sent.took_ms, sent.outcome)
        self._attempts.append(attempt)
        self._note(parcel, sent, verdict, now_ms)
        self.touch()
        return self.hook.status == "active" and self.hook.failures == 0

    def _note(self, parcel: Parcel, sent: Sent, verdict: Verdict, now_ms: int) -> None:
        """Move the cursor, or plan the next attempt."""
        context, before = self.context, self.hook
        chance = context.random_bytes(1)[0] / 255
        if verdict is Verdict.DELIVERED:
            self._pass(parcel, now_ms)
        elif verdict is Verdict.GONE:
            self.hook = replace(before, status="disabled", reason=schedule.GONE)
        elif verdict is Verdict.REFUSED:
            self.hook = schedule.refused(before, sent, now_ms, chance)
            # A refusal is about one event only where one was sent.
            if self.hook.refused >= schedule.REFUSALS_MAX and parcel.events <= 1:
                if parcel.events:
                    self._letters.append(DeadLetter(parcel.epoch, parcel.seq, now_ms, sent.status or 0))
                self._log("event is set aside", outcome=sent.outcome)
                self._pass(parcel, now_ms)
        else:
            is_believed = context.clock.doubt() is None
            self.hook = schedule.failed(before, sent, now_ms, chance, is_clock_believed=is_believed)
        if self.hook.status != before.status:
            self._log("webhook is disabled", reason=self.hook.reason)
        elif self.hook.failures and not before.failures:
            self._log("webhook fails", outcome=sent.outcome)

    def _pass(self, parcel: Parcel, now_ms: int) -> None:
        self.hook = schedule.delivered(self.hook, parcel.epoch, parcel.seq, now_ms)
        for _ in range(parcel.events):
            self._events.popleft()
        if parcel is self._reset:
            self._reset = None

    async def _next_parcel(self) -> Parcel | None:
        """What to send next; None: every event was delivered."""
        context, database = self.context, self.context.database
        source = await source_of(context, database)
        try:
            if self._epoch != source.epoch:
                self._reset = None
                self._events.clear()
                await check_position(context, database, Position.at(self.hook.epoch, self.hook.seq))
                self._epoch = source.epoch
            while not self._events and self._reset is None:
                self.has_pending = False  # an event that is committed during the read sets it again
                piece = await read_slice(database, self.hook.seq, self.hook.wanted, BATCH_EVENTS_MAX)
                self._events.extend(piece.events)
                self.has_pending |= bool(piece.events) or not piece.is_caught_up
                if not piece.events:
                    self.hook = replace(self.hook, seq=max(self.hook.seq, piece.last_seq))
                    if piece.is_caught_up:
                        return None
        except CursorTooOld:
            self.has_pending = True
            self._reset = await self._make_reset(source)
            self._epoch = source.epoch  # only now: an error before it must not leave out the reset
        except Exception:
            self.has_pending = True  # nobody has seen the events that the read would have found
            raise
        return self._reset or self._make_parcel(source)

    def _make_parcel(self, source: Source) -> Parcel:
        # An event that a receiver refused in a batch is found by sending its events one by one.
        count = 1 if self.hook.refused or not self.hook.is_batched else len(self._events)
        bodies: list[bytes] = []
        size = 2
        for event, _ in zip(self._events, range(count), strict=False):
            body = encode_event(event, source)
            size += len(body) + 1
            if bodies and size > BATCH_BYTES_MAX:
                break
            bodies.append(body)
        last = self._events[len(bodies) - 1]
        is_batched = self.hook.is_batched
        return Parcel(
            message_id=Position.at(source.epoch, last.seq),
            body=b"[" + b",".join(bodies) + b"]" if is_batched else bodies[0],
            media_type=BATCH if is_batched else SINGLE,
            epoch=source.epoch, seq=last.seq, at_ms=self._events[0].at_ms, events=len(bodies),
        )  # fmt: skip

    async def _make_reset(self, source: Source) -> Parcel:
        """The event that says that others are missing: those between the hook's cursor and that of the reset."""
        context, database = self.context, self.context.database
        floor_seq, now_ms = await floor(database), context.now_ms()
        is_behind = self.hook.epoch == source.epoch and self.hook.seq < floor_seq
        position = Position.at(source.epoch, floor_seq if is_behind else await newest(database))
        event: dict[str, Any] = {
            "specversion": "1.0",
            "id": f"reset-{position}",
            "source": source.urn,
            "type": RESET_TYPE,
            "subject": WebhookId.from_raw(self.hook.id),
            "time": iso_time(now_ms),
            "data": {"code": CursorTooOld.code, "detail": _REMOVED, "cursor": position},
        }
        body, is_batched = encode(event), self.hook.is_batched
        return Parcel(
            message_id=f"reset-{position}", body=b"[" + body + b"]" if is_batched else body,
            media_type=BATCH if is_batched else SINGLE,
            epoch=position.epoch, seq=position.seq, at_ms=now_ms, events=0,
        )  # fmt: skip

    def _log(self, text: str, **about: object) -> None:
        _log.warning(text, hook=WebhookId.from_raw(self.hook.id), **about)
