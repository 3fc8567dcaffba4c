"""More buckets than are kept: names that an attacker makes up neither free a flooder nor refuse a newcomer."""

from __future__ import annotations

from fractions import Fraction
from unittest.mock import patch

import pytest
from hypothesis import given, strategies as st
from limited import SECOND_NS, Clock, make_limiter

from muniment.service.running.limits import buckets
from muniment.service.running.limits.buckets import _KEPT_MAX, BUCKETS_MAX, Bucket, Rate, Times
from muniment.service.running.limits.limiter import Limiter
from muniment.service.running.limits.policies import Policy

POLICY = Policy("client", 100, 10)
# A bucket, the time since the charge before, and the units.
STEPS = st.lists(
    st.tuples(st.integers(0, 11), st.integers(0, 4 * SECOND_NS), st.integers(1, 40)), min_size=1, max_size=80
)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def limiter(clock: Clock) -> Limiter:
    return make_limiter(clock)


def times_of(limiter: Limiter) -> Times:
    return limiter._times["client"]


def make_up(limiter: Limiter, count: int, *, units: int = 1, first: int = 0) -> int:
    """Charge so many addresses that nobody has used before; how many of the charges were admitted."""
    numbers = range(first, first + count)
    return sum(
        limiter.client(f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}").client.charge(units) == 0
        for number in numbers
    )


def drained(limiter: Limiter, address: str) -> int:
    """How many units the address gets until it is refused."""
    key, count = limiter.client(address).client, 0
    while key.charge(1) == 0:
        count += 1
    return count


def test_made_up_names_take_bounded_memory_and_are_forgotten_once_they_have_drained(
    limiter: Limiter, clock: Clock
) -> None:
    sizes: list[int] = []
    for turn in range(100):
        assert make_up(limiter, 1_000, first=1_000 * turn) == 1_000
        sizes.append(len(times_of(limiter).known))
        clock.advance(1)  # a unit drains in a tenth of it
    assert max(sizes) <= BUCKETS_MAX
    assert min(sizes[-34:]) < BUCKETS_MAX // 16  # all but the newest had drained
    assert times_of(limiter).floor == 0


def test_a_flooder_stays_refused_whatever_names_come(limiter: Limiter, clock: Clock) -> None:
    flooder = limiter.client("192.0.2.1").client
    assert flooder.charge(100) == 0
    for turn in range(2):
        make_up(limiter, BUCKETS_MAX, first=BUCKETS_MAX * turn)
        assert flooder.charge(1) == SECOND_NS // 10
        assert len(times_of(limiter).known) <= BUCKETS_MAX
    clock.advance(1)
    assert drained(limiter, "192.0.2.1") == 10


def test_whoever_is_forgotten_gains_nothing(limiter: Limiter) -> None:
    """A flooder of many addresses, each of which used half of its quota before others used more."""
    assert make_up(limiter, 1_000, units=50) == 1_000
    make_up(limiter, BUCKETS_MAX, units=60, first=1_000)
    assert "10.0.0.1" not in times_of(limiter).known
    assert make_up(limiter, 1_000, units=51) == 0


def test_newcomers_are_admitted_while_a_flood_of_names_comes(limiter: Limiter) -> None:
    flood = 3 * BUCKETS_MAX
    assert make_up(limiter, flood) == flood
    for number in range(100):  # all that a newcomer lacks is its part of what they used
        assert 100 - flood // _KEPT_MAX <= drained(limiter, f"192.0.2.{number}") < 100


def test_newcomers_are_admitted_while_thousands_of_clients_are_over_their_limits(limiter: Limiter) -> None:
    flood = 2 * BUCKETS_MAX
    assert make_up(limiter, _KEPT_MAX, units=100) == _KEPT_MAX
    assert make_up(limiter, flood, first=BUCKETS_MAX) == flood
    assert drained(limiter, "192.0.2.1") >= 100 - flood // _KEPT_MAX - 1
    assert limiter.client("10.0.0.1").client.charge(1) > 0


def test_where_more_are_over_their_limits_than_are_kept_a_newcomer_waits_no_longer_than_they(
    limiter: Limiter, clock: Clock
) -> None:
    """It cannot be told from one of them; to let it pass would free all of them."""
    make_up(limiter, 2 * BUCKETS_MAX, units=100)
    newcomer = limiter.client("192.0.2.1").client
    assert newcomer.charge(1) == SECOND_NS // 10
    clock.advance(1)
    assert newcomer.charge(10) == 0
    clock.advance(10)
    assert drained(limiter, "192.0.2.2") == 100


def test_a_charge_looks_at_a_bounded_number_of_buckets_on_average(
    limiter: Limiter, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks, make_room = [0], Times.make_room

    def counted(times: Times, now: int) -> None:
        looks[0] += len(times.known)
        make_room(times, now)

    monkeypatch.setattr(Times, "make_room", counted)
    charges = 3 * BUCKETS_MAX
    for number in range(charges):
        make_up(limiter, 1, first=number)
        clock.now_ns += 1  # so that no two buckets have the same time
    assert 0 < looks[0] <= 2 * charges + BUCKETS_MAX


@given(steps=STEPS)
def test_no_name_ever_gets_more_than_its_quota_and_what_drained(steps: list[tuple[int, int, int]]) -> None:
    clock, times = Clock(), Times()
    rate = Rate(POLICY, 1)
    used: dict[int, Fraction] = {}
    with patch.object(buckets, "BUCKETS_MAX", 6), patch.object(buckets, "_KEPT_MAX", 3):
        for name, passed_ns, units in steps:
            clock.now_ns += passed_ns
            drained = Fraction(POLICY.quota * passed_ns, POLICY.window_ns)
            used = {each: max(level - drained, Fraction(0)) for each, level in used.items()}
            if Bucket(times, str(name), rate, clock).charge(units) == 0:
                used[name] = used.get(name, Fraction(0)) + units
                assert used[name] <= POLICY.quota
            assert len(times.known) <= 6
