"""When a run without a result is tried again."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, strategies as st

from muniment.relayer.schedule.rests import REST_MS_MAX, rests_until
from muniment.relayer.schedule.tries import next_try

MINUTE = 60_000


def tries_of(code: str, until_ms: int) -> list[int]:
    """The seconds at which a run is tried that never has a result, from 0 on."""
    now_ms, times = 0, list[int]()
    while now_ms <= until_ms:
        times.append(now_ms // 1_000)
        now_ms = next_try(code, len(times), now_ms, until_ms)
    return times


def test_pauses_double_up_to_five_minutes_and_a_last_try_is_made_at_the_end() -> None:
    assert tries_of("no-answer", 20 * MINUTE) == [0, 5, 15, 35, 75, 155, 315, 615, 915, 1_170]
    assert tries_of("nodes-differ", MINUTE) == [0, 5, 15, 30]
    assert tries_of("no-answer", 10_000) == [0, 5]


def test_a_block_is_asked_for_each_five_seconds_for_five_minutes() -> None:
    times = tries_of("no-block", 20 * MINUTE)
    assert times[:62] == [*range(0, 306, 5)]
    assert [later - time for time, later in pairwise(times[61:])] == [10, 20, 40, 80, 160, 300, 255]


@given(st.sampled_from(["no-answer", "no-block"]), st.integers(0, 3_600_000))
def test_a_try_is_made_in_the_last_half_minute(code: str, until_ms: int) -> None:
    assert until_ms - 30_000 <= 1_000 * tries_of(code, until_ms)[-1] + 999


def test_a_rest_that_a_clock_set_which_was_ahead_does_not_begin_again_each_hour() -> None:
    assert rests_until(REST_MS_MAX, 0) == REST_MS_MAX
    assert rests_until(24 * REST_MS_MAX, 0) == 0
