"""The state of a webhook between two requests: what an answer changes, and when the next attempt comes.

Pure: time and chance are passed in. The deliverer alone holds states.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from muniment.protocol.errors import CursorTooOld
from muniment.protocol.wire import encode, iso_time
from muniment.service.resources.feed.events import Position, encode_event
from muniment.service.resources.webhooks.sending import BATCH, SINGLE
from muniment.service.resources.webhooks.store import WAIT_MS_MAX, Attempt, DeadLetter
from muniment.service.resources.webhooks.types import WebhookId, WebhookStatus

if TYPE_CHECKING:
    from muniment.service.resources.feed.events import Event, Source
    from muniment.service.resources.webhooks.sending import Sent
    from muniment.service.resources.webhooks.store import Hook

# Limits of one request to a hook with `batch`; small servers still accept a body of this size.
BATCH_EVENTS_MAX: Final = 100
BATCH_BYTES_MAX: Final = 256 * 1024
# The type of the event that reports missing events.
RESET_TYPE: Final = "muniment.feed.reset"
_REMOVED: Final = "events after your last one were removed: read what you follow again"

# The pauses after attempts that failed: a restart is over in seconds, an outage takes hours.
_FAILURE_WAITS_MS: Final = (5_000, 30_000, 120_000, 600_000, 1_800_000, 3_600_000)
# The pauses after the first four refusals of an event. The five attempts take under ten minutes.
_REFUSAL_WAITS_MS: Final = (5_000, 30_000, 120_000, 300_000)
REFUSALS_MAX: Final = len(_REFUSAL_WAITS_MS) + 1
# Pauses vary by a fifth up and down, so that many hooks of one receiver do not come back together.
_JITTER: Final = 0.2
# A receiver that has failed for this long is gone: five days outlast a long weekend.
FAILING_MS_MAX: Final = 5 * 86_400_000
# Five days have at least a hundred attempts. With fewer, the clock jumped or this service was down.
_FAILURES_MIN: Final = 50
_FIRST_SUCCESS: Final = 200
_FIRST_REDIRECT: Final = 300
_FIRST_CLIENT_ERROR: Final = 400
_FIRST_SERVER_ERROR: Final = 500
_GONE: Final = 410
# Request Timeout, Too Early, Too Many Requests: the same request may succeed later (RFC 9110, RFC 8470, RFC 6585).
_PASSING: Final = frozenset({408, 425, 429})

GONE: Final = "the receiver answered 410: it wants no more events"
FAILED_LONG: Final = "no attempt has succeeded for five days"


class Verdict(Enum):
    """The outcome of an attempt; the values are labels of a metric."""

    DELIVERED = "delivered"
    FAILED = "failed"  # it may succeed later
    REFUSED = "refused"  # the receiver does not want this event
    GONE = "gone"  # the receiver wants no event


def judge(sent: Sent) -> Verdict:
    """The verdict of a status. A redirect is a failure: it is not followed, and an operator can correct it."""
    status = sent.status
    if status is None:
        return Verdict.FAILED
    if _FIRST_SUCCESS <= status < _FIRST_REDIRECT:
        return Verdict.DELIVERED
    if status == _GONE:
        return Verdict.GONE
    if _FIRST_CLIENT_ERROR <= status < _FIRST_SERVER_ERROR and status not in _PASSING:
        return Verdict.REFUSED
    return Verdict.FAILED


@dataclass(frozen=True, slots=True)
class Delivery:
    """The body of a request. After its delivery the cursor is `epoch` and `seq`; `events` is 0 for a reset."""

    message_id: str
    body: bytes
    media_type: str
    epoch: int
    seq: int
    at_ms: int
    events: int

    @classmethod
    def of_events(cls, hook: Hook, events: Sequence[Event], source: Source) -> Delivery:
        """The first of `events`, or several for a hook with `batch`."""
        # After a refusal a batch is sent event by event, to find the refused one.
        count = 1 if hook.refused or not hook.is_batched else len(events)
        bodies: list[bytes] = []
        size = 2
        for event, _ in zip(events, range(count), strict=False):
            body = encode_event(event, source)
            size += len(body) + 1
            if bodies and size > BATCH_BYTES_MAX:
                break
            bodies.append(body)
        last = events[len(bodies) - 1]
        return cls(
            message_id=Position.at(source.epoch, last.seq),
            body=b"[" + b",".join(bodies) + b"]" if hook.is_batched else bodies[0],
            media_type=BATCH if hook.is_batched else SINGLE,
            epoch=source.epoch, seq=last.seq, at_ms=events[0].at_ms, events=len(bodies),
        )  # fmt: skip

    @classmethod
    def of_reset(cls, hook: Hook, source: Source, seq: int, now_ms: int) -> Delivery:
        """The event that reports missing events: those between the hook's cursor and `seq`."""
        position = Position.at(source.epoch, seq)
        event: dict[str, Any] = {
            "specversion": "1.0",
            "id": f"reset-{position}",
            "source": source.urn,
            "type": RESET_TYPE,
            "subject": WebhookId.from_raw(hook.id),
            "time": iso_time(now_ms),
            "data": {"code": CursorTooOld.code, "detail": _REMOVED, "cursor": position},
        }
        body = encode(event)
        return cls(
            message_id=f"reset-{position}", body=b"[" + body + b"]" if hook.is_batched else body,
            media_type=BATCH if hook.is_batched else SINGLE, epoch=source.epoch, seq=seq, at_ms=now_ms, events=0,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class HookState:
    """A hook as it is now, and its attempts and dead letters that are not stored yet."""

    hook: Hook
    attempts: tuple[Attempt, ...] = ()
    dead_letters: tuple[DeadLetter, ...] = ()

    def after(
        self, delivery: Delivery, sent: Sent, now_ms: int, chance: float, *, is_clock_trusted: bool = True
    ) -> HookState:
        """The state after an attempt: a new cursor, the time of the next attempt, or the end of the hook.

        `chance` is between 0 and 1. While the clock is not trusted, no failure disables the hook.
        """
        hook, letters = self.hook, self.dead_letters
        match judge(sent):
            case Verdict.DELIVERED:
                hook = _moved(hook, delivery, now_ms)
            case Verdict.GONE:
                hook = replace(hook, status="disabled", reason=GONE)
            case Verdict.REFUSED:
                hook = _failed(hook, sent, now_ms, chance, is_refused=True)
                # A refusal is about one event only where one was sent.
                if hook.refused >= REFUSALS_MAX and delivery.events <= 1:
                    if delivery.events:
                        letters = (*letters, DeadLetter(delivery.epoch, delivery.seq, now_ms, sent.status or 0))
                    hook = _moved(hook, delivery, now_ms)
            case Verdict.FAILED:
                hook = _failed(hook, sent, now_ms, chance, is_refused=False)
                if is_clock_trusted and _is_given_up(hook, now_ms):
                    hook = replace(hook, status="disabled", reason=FAILED_LONG)
        attempt = Attempt(now_ms, delivery.epoch, delivery.seq, sent.status, sent.took_ms, sent.outcome)
        return HookState(hook, (*self.attempts, attempt), letters)

    def is_past(self, delivery: Delivery) -> bool:
        """Whether the cursor is that of `delivery`, which was delivered or moved to dead letters."""
        return (self.hook.epoch, self.hook.seq) == (delivery.epoch, delivery.seq)

    def at(self, seq: int) -> HookState:
        """The state with its cursor at `seq`, if that is later: no event before it matches."""
        return self if seq <= self.hook.seq else replace(self, hook=replace(self.hook, seq=seq))

    def ended(self, status: WebhookStatus, reason: str | None) -> HookState:
        """The state of a hook that is delivered to no more."""
        return replace(self, hook=replace(self.hook, status=status, reason=reason))

    def without(self, stored: HookState) -> HookState:
        """The state without the attempts and dead letters of `stored`, an earlier state."""
        attempts, letters = self.attempts[len(stored.attempts) :], self.dead_letters[len(stored.dead_letters) :]
        return HookState(self.hook, attempts, letters)


def is_due(hook: Hook, now_ms: int) -> bool:
    """Whether the next attempt may begin. A time too far ahead was written by a clock that was wrong."""
    return not now_ms < hook.due_at_ms <= now_ms + WAIT_MS_MAX


def reset_failures(hook: Hook, now_ms: int) -> Hook:
    """The hook without its failures, and due now."""
    return replace(hook, due_at_ms=now_ms, failures=0, failing_since_ms=None, refused=0)


def _moved(hook: Hook, delivery: Delivery, now_ms: int) -> Hook:
    """The hook after `delivery`, which was delivered or moved to dead letters."""
    return replace(reset_failures(hook, now_ms), epoch=delivery.epoch, seq=delivery.seq)


def _failed(hook: Hook, sent: Sent, now_ms: int, chance: float, *, is_refused: bool) -> Hook:
    failures = hook.failures + 1
    hook = replace(hook, failures=failures, failing_since_ms=_since(hook.failing_since_ms, now_ms))
    waits_ms, count = _FAILURE_WAITS_MS, failures
    if is_refused:
        waits_ms, count = _REFUSAL_WAITS_MS, hook.refused + 1
        hook = replace(hook, refused=count)
    planned_ms = waits_ms[min(count, len(waits_ms)) - 1]
    varied_ms = int(planned_ms * (1 - _JITTER + 2 * _JITTER * chance))
    return replace(hook, due_at_ms=now_ms + max(varied_ms, 1_000 * (sent.retry_after_s or 0)))


def _is_given_up(hook: Hook, now_ms: int) -> bool:
    since_ms = hook.failing_since_ms
    return since_ms is not None and hook.failures >= _FAILURES_MIN and now_ms - since_ms >= FAILING_MS_MAX


def _since(since_ms: int | None, now_ms: int) -> int:
    """The start of failures; a time in the future was written by a clock that was ahead."""
    return now_ms if since_ms is None else min(since_ms, now_ms)
