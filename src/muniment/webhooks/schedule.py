"""What an answer of a receiver means, and when the next attempt comes."""

from __future__ import annotations

from dataclasses import replace
from enum import Enum
from typing import TYPE_CHECKING, Final

from muniment.webhooks.store import WAIT_MS_MAX

if TYPE_CHECKING:
    from muniment.webhooks.sending import Sent
    from muniment.webhooks.store import Hook

# The pauses after attempts that failed: a restart is over in seconds, an outage takes hours.
_FAILURE_WAITS_MS: Final = (5_000, 30_000, 120_000, 600_000, 1_800_000, 3_600_000)
# The pauses after the first four refusals of an event. The five attempts take under ten minutes.
_REFUSAL_WAITS_MS: Final = (5_000, 30_000, 120_000, 300_000)
REFUSALS_MAX: Final = len(_REFUSAL_WAITS_MS) + 1
# Pauses vary by a fifth up and down, so that many hooks of one receiver do not come back together.
_JITTER: Final = 0.2
# A receiver that has failed for so long is gone: five days outlast a long weekend.
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
REFUSED_OFTEN: Final = "the receiver has refused 100 events"


class Verdict(Enum):
    """What became of an attempt; the values are labels of a metric."""

    DELIVERED = "delivered"
    FAILED = "failed"  # it may succeed later
    REFUSED = "refused"  # the receiver does not want this event
    GONE = "gone"  # the receiver wants no event


def judge(sent: Sent) -> Verdict:
    """What the answer means. A redirect is a failure: it is not followed, and an operator can mend it."""
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


def is_due(hook: Hook, now_ms: int) -> bool:
    """Whether the next attempt may begin. One that is too far ahead was dated by a clock that was wrong."""
    return not now_ms < hook.due_at_ms <= now_ms + WAIT_MS_MAX


def delivered(hook: Hook, epoch: int, seq: int, now_ms: int) -> Hook:
    """The hook behind the event `seq`, which was delivered or set aside."""
    return replace(
        hook, epoch=epoch, seq=seq, due_at_ms=now_ms,
        failures=0, failing_since_ms=None, refused=0, refused_since_ms=None,
    )  # fmt: skip


def failed(hook: Hook, sent: Sent, now_ms: int, chance: float, *, is_clock_believed: bool) -> Hook:
    """The hook after an attempt that failed; `chance` is between 0 and 1. After five days it is disabled."""
    failures, since_ms = hook.failures + 1, _since(hook.failing_since_ms, now_ms)
    after = replace(
        hook, failures=failures, failing_since_ms=since_ms,
        due_at_ms=now_ms + _wait_ms(_FAILURE_WAITS_MS, failures, sent.retry_after_s, chance),
    )  # fmt: skip
    if is_clock_believed and failures >= _FAILURES_MIN and now_ms - since_ms >= FAILING_MS_MAX:
        return replace(after, status="disabled", reason=FAILED_LONG)
    return after


def refused(hook: Hook, sent: Sent, now_ms: int, chance: float) -> Hook:
    """The hook after a refusal. At `REFUSALS_MAX` of `refused` the event is to be set aside."""
    count = hook.refused + 1
    return replace(
        hook, refused=count, refused_since_ms=_since(hook.refused_since_ms, now_ms),
        failures=hook.failures + 1, failing_since_ms=_since(hook.failing_since_ms, now_ms),
        due_at_ms=now_ms + _wait_ms(_REFUSAL_WAITS_MS, count, sent.retry_after_s, chance),
    )  # fmt: skip


def _since(since_ms: int | None, now_ms: int) -> int:
    """When it began; a time in the future was written by a clock that was ahead."""
    return now_ms if since_ms is None else min(since_ms, now_ms)


def _wait_ms(waits_ms: tuple[int, ...], count: int, retry_after_s: int | None, chance: float) -> int:
    planned_ms = waits_ms[min(count, len(waits_ms)) - 1]
    varied_ms = int(planned_ms * (1 - _JITTER + 2 * _JITTER * chance))
    return max(varied_ms, 1_000 * (retry_after_s or 0))
