"""Steps of a clock: when one begins, and when it is over."""

from __future__ import annotations

from each_row import each_row
from muniment.service.running.clock import APART_MS_MAX, Steadiness

STEADY_MS = 300_000
HOUR_MS = 3_600_000
START_MS = 1_795_204_080_123


def begun() -> Steadiness:
    made = Steadiness(STEADY_MS)
    assert made.read(START_MS, 1_000) == START_MS
    return made


def test_a_clock_that_goes_on_is_never_in_doubt() -> None:
    made = begun()
    for now_ms in range(1_000, 10 * HOUR_MS, 60_000):
        assert made.read(START_MS, now_ms) == START_MS
        assert made.doubt_ms(now_ms) == 0


@each_row("step_ms", [APART_MS_MAX + 1, -APART_MS_MAX - 1, 3 * HOUR_MS, -50 * 365 * 24 * HOUR_MS])
def test_a_step_is_not_followed_until_the_clock_was_steady(step_ms: int) -> None:
    made = begun()
    assert made.read(START_MS + step_ms, 2_000) == START_MS
    assert (made.step_ms, made.doubt_ms(2_000)) == (step_ms, STEADY_MS)
    assert made.read(START_MS + step_ms, 2_000 + STEADY_MS - 1) == START_MS
    assert made.doubt_ms(2_000 + STEADY_MS - 1) == 1
    assert made.read(START_MS + step_ms, 2_000 + STEADY_MS) == START_MS + step_ms
    assert made.doubt_ms(2_000 + STEADY_MS) == 0


@each_row("step_ms", [APART_MS_MAX, -APART_MS_MAX, 1])
def test_a_small_step_is_followed_at_once(step_ms: int) -> None:
    made = begun()
    assert made.read(START_MS + step_ms, 2_000) == START_MS + step_ms
    assert made.doubt_ms(2_000) == 0


def test_small_steps_in_a_row_count_as_the_large_one_that_they_are() -> None:
    made = begun()
    for number in range(1, 4):
        made.read(START_MS + number * 100_000, 1_000 + number)
        assert made.doubt_ms(1_000 + number) == 0
    made.read(START_MS + 400_000, 1_005)
    assert made.doubt_ms(1_005) == STEADY_MS


def test_a_clock_that_is_slewed_for_a_day_is_steady() -> None:
    made = begun()
    for minute in range(24 * 60):
        offset_ms, now_ms = START_MS + minute * 30_000, 1_000 + minute * 60_000
        assert made.read(offset_ms, now_ms) == offset_ms
        assert made.doubt_ms(now_ms) == 0


def test_a_clock_that_came_back_is_followed_again_and_must_be_steady_from_then_on() -> None:
    made = begun()
    made.read(START_MS + 3 * HOUR_MS, 2_000)
    assert made.read(START_MS + 7, 60_000) == START_MS + 7
    assert made.doubt_ms(60_000) == STEADY_MS
    made.read(START_MS + 7, 60_000 + STEADY_MS)
    assert made.doubt_ms(60_000 + STEADY_MS) == 0
