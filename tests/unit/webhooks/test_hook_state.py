"""States of webhooks: the meaning of answers, and the time of the next attempt."""

from __future__ import annotations

from dataclasses import replace

from each_row import each_row
from muniment.service.resources.webhooks import hook_state
from muniment.service.resources.webhooks.hook_state import Delivery, HookState, Verdict, is_due, judge
from muniment.service.resources.webhooks.sending import Sent
from muniment.service.resources.webhooks.store import DeadLetter, Hook

NOW_MS = 1_795_204_080_123
HOUR_MS = 3_600_000
HOOK = Hook(
    id=bytes(16), operator="cli", url="https://hooks.example.org/", types=None, filters=None,
    is_batched=False, status="active", reason=None, secret_id="a", key_generation=1, old_secret_id=None,
    old_until_ms=None, epoch=0, seq=7, due_at_ms=NOW_MS, failures=0, failing_since_ms=None, refused=0,
    revision=0, redirects=0, created_at_ms=NOW_MS,
)  # fmt: skip
DELIVERY = Delivery("id", b"{}", "application/cloudevents+json", epoch=0, seq=8, at_ms=NOW_MS, events=1)


def sent(status: int | None, retry_after_s: int | None = None) -> Sent:
    return Sent(status, "word", 3, retry_after_s)


def after(
    hook: Hook, answer: Sent, now_ms: int = NOW_MS, chance: float = 0.5, *, is_clock_trusted: bool = True
) -> Hook:
    return HookState(hook).after(DELIVERY, answer, now_ms, chance, is_clock_trusted=is_clock_trusted).hook


def after_failures(count: int, chance: float = 0.5) -> list[int]:
    """The pauses after `count` failures, in milliseconds."""
    hook, now_ms, waits = HOOK, NOW_MS, list[int]()
    for _ in range(count):
        hook = after(hook, sent(500), now_ms, chance)
        waits.append(hook.due_at_ms - now_ms)
        now_ms = hook.due_at_ms
    return waits


@each_row(
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
    longer = after(HOOK, sent(429, 60))
    assert longer.due_at_ms == NOW_MS + 60_000
    shorter = after(HOOK, sent(429, 1))
    assert shorter.due_at_ms == NOW_MS + 5_000


def test_five_days_of_failures_disable_a_hook_and_a_jump_of_the_clock_does_not() -> None:
    hook, now_ms = HOOK, NOW_MS
    while hook.status == "active":
        hook = after(hook, sent(None), now_ms)
        assert now_ms - NOW_MS < hook_state.FAILING_MS_MAX + 2 * HOUR_MS
        now_ms = hook.due_at_ms
    assert now_ms - NOW_MS >= hook_state.FAILING_MS_MAX
    assert hook.reason == hook_state.FAILED_LONG
    assert hook.seq == HOOK.seq

    once = after(HOOK, sent(None), NOW_MS)
    much_later = NOW_MS + 100 * hook_state.FAILING_MS_MAX
    assert after(once, sent(None), much_later).status == "active"
    often = replace(once, failures=500)
    assert after(often, sent(None), much_later, is_clock_trusted=False).status == "active"
    assert after(often, sent(None), much_later).status == "disabled"


def test_a_failure_that_is_dated_in_the_future_is_dated_again() -> None:
    ahead = replace(HOOK, failures=3, failing_since_ms=NOW_MS + HOUR_MS)
    assert after(ahead, sent(None), NOW_MS).failing_since_ms == NOW_MS
    assert is_due(replace(HOOK, due_at_ms=NOW_MS + 48 * HOUR_MS), NOW_MS)
    assert not is_due(replace(HOOK, due_at_ms=NOW_MS + HOUR_MS), NOW_MS)


@each_row("chance", [0.0, 1.0])
def test_an_event_is_refused_five_times_within_ten_minutes(chance: float) -> None:
    state, now_ms = HookState(HOOK), NOW_MS
    for _ in range(hook_state.REFUSALS_MAX - 1):
        state = state.after(DELIVERY, sent(400), now_ms, chance)
        now_ms = state.hook.due_at_ms
    assert state.hook.refused == 4
    assert now_ms - NOW_MS <= 600_000
    assert state.hook.status == "active"
    assert after(state.hook, sent(204), now_ms).refused == 0
    assert not state.is_past(DELIVERY)
    state = state.after(DELIVERY, sent(400), now_ms, chance)
    assert state.is_past(DELIVERY)
    assert state.dead_letters == (DeadLetter(0, 8, now_ms, 400),)
    assert (state.hook.status, state.hook.refused, len(state.attempts)) == ("active", 0, 5)


def test_a_refused_batch_is_no_dead_letter() -> None:
    state = HookState(replace(HOOK, refused=4)).after(replace(DELIVERY, events=3), sent(400), NOW_MS, 0.5)
    assert (state.dead_letters, state.hook.seq, state.hook.refused) == ((), HOOK.seq, 5)


def test_a_receiver_that_is_gone_disables_a_hook() -> None:
    assert after(HOOK, sent(410)) == replace(HOOK, status="disabled", reason=hook_state.GONE)
