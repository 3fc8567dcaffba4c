"""What answers of receivers mean, and when the next attempt comes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from muniment.webhooks import schedule
from muniment.webhooks.schedule import Verdict, judge
from muniment.webhooks.sending import Sent
from muniment.webhooks.store import Hook

NOW_MS = 1_795_204_080_123
HOUR_MS = 3_600_000
HOOK = Hook(
    id=bytes(16), owner=None, operator="cli", url="https://hooks.example.org/", types=None, filters=None,
    is_batched=False, status="active", reason=None, secret_id="a", generation=1, old_secret_id=None,
    old_until_ms=None, epoch=0, seq=7, due_at_ms=NOW_MS, failures=0, failing_since_ms=None, refused=0,
    refused_since_ms=None, turn=0, redirects=0, created_at_ms=NOW_MS,
)  # fmt: skip


def sent(status: int | None, retry_after_s: int | None = None) -> Sent:
    return Sent(status, "word", 3, retry_after_s)


def after_failures(count: int, chance: float = 0.5) -> list[int]:
    """The pauses after so many failures, in milliseconds."""
    hook, now_ms, waits = HOOK, NOW_MS, list[int]()
    for _ in range(count):
        hook = schedule.failed(hook, sent(500), now_ms, chance, is_clock_believed=True)
        waits.append(hook.due_at_ms - now_ms)
        now_ms = hook.due_at_ms
    return waits


@pytest.mark.parametrize(
    ("status", "verdict"),
    [
        (200, Verdict.DELIVERED), (204, Verdict.DELIVERED), (299, Verdict.DELIVERED),
        (None, Verdict.FAILED), (301, Verdict.FAILED), (302, Verdict.FAILED), (307, Verdict.FAILED),
        (408, Verdict.FAILED), (425, Verdict.FAILED), (429, Verdict.FAILED), (500, Verdict.FAILED),
        (503, Verdict.FAILED), (599, Verdict.FAILED), (199, Verdict.FAILED), (600, Verdict.FAILED),
        (400, Verdict.REFUSED), (401, Verdict.REFUSED), (404, Verdict.REFUSED), (422, Verdict.REFUSED),
        (499, Verdict.REFUSED), (410, Verdict.GONE),
    ],
)  # fmt: skip
def test_a_status_has_one_meaning(status: int | None, verdict: Verdict) -> None:
    assert judge(sent(status)) is verdict


def test_pauses_grow_to_an_hour_and_vary_by_a_fifth() -> None:
    planned = [5_000, 30_000, 120_000, 600_000, 1_800_000, HOUR_MS, HOUR_MS]
    assert after_failures(7) == planned
    assert after_failures(7, 0.0) == [each * 8 // 10 for each in planned]
    assert after_failures(7, 1.0) == [each * 12 // 10 for each in planned]


def test_a_receiver_that_asks_for_a_longer_pause_gets_it() -> None:
    longer = schedule.failed(HOOK, sent(429, 60), NOW_MS, 0.5, is_clock_believed=True)
    assert longer.due_at_ms == NOW_MS + 60_000
    shorter = schedule.failed(HOOK, sent(429, 1), NOW_MS, 0.5, is_clock_believed=True)
    assert shorter.due_at_ms == NOW_MS + 5_000


def test_five_days_of_failures_disable_a_hook_and_a_jump_of_the_clock_does_not() -> None:
    hook, now_ms = HOOK, NOW_MS
    while hook.status == "active":
        hook = schedule.failed(hook, sent(None), now_ms, 0.5, is_clock_believed=True)
        assert now_ms - NOW_MS < schedule.FAILING_MS_MAX + 2 * HOUR_MS
        now_ms = hook.due_at_ms
    assert now_ms - NOW_MS >= schedule.FAILING_MS_MAX
    assert hook.reason == schedule.FAILED_LONG
    assert hook.seq == HOOK.seq

    once = schedule.failed(HOOK, sent(None), NOW_MS, 0.5, is_clock_believed=True)
    much_later = NOW_MS + 100 * schedule.FAILING_MS_MAX
    assert schedule.failed(once, sent(None), much_later, 0.5, is_clock_believed=True).status == "active"
    often = replace(once, failures=500)
    assert schedule.failed(often, sent(None), much_later, 0.5, is_clock_believed=False).status == "active"
    assert schedule.failed(often, sent(None), much_later, 0.5, is_clock_believed=True).status == "disabled"


def test_a_failure_that_is_dated_in_the_future_is_dated_again() -> None:
    ahead = replace(HOOK, failures=3, failing_since_ms=NOW_MS + HOUR_MS)
    assert schedule.failed(ahead, sent(None), NOW_MS, 0.5, is_clock_believed=True).failing_since_ms == NOW_MS
    assert schedule.is_due(replace(HOOK, due_at_ms=NOW_MS + 48 * HOUR_MS), NOW_MS)
    assert not schedule.is_due(replace(HOOK, due_at_ms=NOW_MS + HOUR_MS), NOW_MS)


@pytest.mark.parametrize("chance", [0.0, 1.0])
def test_an_event_is_refused_five_times_within_ten_minutes(chance: float) -> None:
    hook, now_ms = HOOK, NOW_MS
    for _ in range(schedule.REFUSALS_MAX - 1):
        hook = schedule.refused(hook, sent(400), now_ms, chance)
        now_ms = hook.due_at_ms
    assert hook.refused == 4
    assert now_ms - NOW_MS <= 600_000
    assert hook.status == "active"
    assert schedule.delivered(hook, 0, 8, now_ms).refused == 0
