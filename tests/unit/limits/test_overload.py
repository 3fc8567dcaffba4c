"""When a process refuses, and what."""

from __future__ import annotations

import pytest

from each_row import each_row
from muniment.service.running.limits.costs import Shed
from muniment.service.running.limits.overload import IN_FLIGHT_MAX, Overload

MS = 1_000_000
KINDS = (Shed.EARLY, Shed.MIDDLE, Shed.LATE, Shed.READ, Shed.PAGE, Shed.NEVER)


class Loop:
    """An event loop whose timer is late by as much as a test says."""

    def __init__(self, chance: float = 0.0) -> None:
        self.now_ns = 0
        self.overload = Overload(lambda: chance, 0)

    def run(self, ms: int, *, late_ms: int) -> Overload:
        until_ns = self.now_ns + ms * MS
        while self.now_ns < until_ns:
            self.now_ns += (10 + late_ms) * MS
            self.overload.tick(self.now_ns)
        return self.overload


def refused(overload: Overload) -> set[Shed]:
    return {kind for kind in KINDS if overload.refuses(kind)}


@each_row(
    ("late_ms", "expected"),
    [
        (0, set[Shed]()),
        (95, set[Shed]()),
        (100, {Shed.EARLY}),
        (200, {Shed.EARLY, Shed.MIDDLE}),
        (401, {Shed.EARLY, Shed.MIDDLE, Shed.LATE, Shed.READ, Shed.PAGE}),
    ],
)
def test_the_lag_of_the_loop_decides_what_is_refused(late_ms: int, expected: set[Shed]) -> None:
    assert refused(Loop().run(5_000, late_ms=late_ms)) == expected


def test_one_long_turn_causes_no_refusal() -> None:
    loop = Loop()
    loop.run(1_000, late_ms=1)
    assert refused(loop.run(1, late_ms=3_000)) == set()
    assert refused(loop.run(1_000, late_ms=1)) == set()


def test_a_level_is_reached_and_left_after_it_was_held() -> None:
    loop = Loop()
    assert not loop.run(200, late_ms=150).refuses(Shed.EARLY)
    assert loop.run(500, late_ms=150).refuses(Shed.EARLY)
    assert loop.run(200, late_ms=0).refuses(Shed.EARLY)
    assert not loop.run(200, late_ms=0).refuses(Shed.EARLY)


def test_deactivations_and_health_are_never_refused() -> None:
    overload = Loop().run(60_000, late_ms=10_000)
    overload.in_flight = 10 * IN_FLIGHT_MAX
    assert refused(overload) == set(KINDS) - {Shed.NEVER}


@each_row(("late_ms", "share"), [(399, 0.0), (500, 0.2), (800, 0.5), (4_000, 0.9)])
def test_a_growing_share_of_reads_is_refused(late_ms: int, share: float) -> None:
    assert Loop().run(20_000, late_ms=late_ms).share_of_reads == pytest.approx(share)
    for shed in (Shed.READ, Shed.PAGE):
        assert not Loop(chance=share + 0.01).run(20_000, late_ms=late_ms).refuses(shed)
        if share:
            assert Loop(chance=share - 0.01).run(20_000, late_ms=late_ms).refuses(shed)


def test_beyond_so_many_in_flight_all_is_refused_at_once() -> None:
    overload = Overload(lambda: 0.0, 0)
    overload.in_flight = IN_FLIGHT_MAX - 1
    assert refused(overload) == set()
    overload.in_flight += 1
    assert refused(overload) == set(KINDS) - {Shed.NEVER}
    overload.in_flight -= 1
    assert refused(overload) == set()
