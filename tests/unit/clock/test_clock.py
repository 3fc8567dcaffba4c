"""The time of a process, and the reasons for doubt about its clock."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from conftest import NOW_MS
from each_row import each_row
from muniment.protocol.errors import ClockInDoubt
from muniment.service.running.clock import STEADY_MS, Clock

HOUR_MS = 3_600_000


@dataclass
class Machine:
    """A machine's two clocks."""

    monotonic_ms: int = 7_000
    wall_ms: int = NOW_MS

    def pass_ms(self, ms: int) -> None:
        self.monotonic_ms += ms
        self.wall_ms += ms

    def clock(self) -> Clock:
        return Clock(lambda: self.wall_ms, lambda: self.monotonic_ms)


def test_while_the_clock_is_in_doubt_time_goes_on_by_the_monotonic_one() -> None:
    machine = Machine()
    clock = machine.clock()
    machine.wall_ms += 3 * HOUR_MS
    machine.pass_ms(1_500)
    assert clock.now_ms() == NOW_MS + 1_500
    doubt = clock.doubt()
    assert doubt is not None
    assert doubt.reason == "the clock stepped by +3 h"
    with pytest.raises(ClockInDoubt) as refused:
        clock.require()
    assert refused.value.facts == {"retryAfter": 300}
    machine.wall_ms -= 3 * HOUR_MS
    assert clock.now_ms() == NOW_MS + 1_500
    machine.pass_ms(STEADY_MS - 1)
    doubt = clock.doubt()
    assert doubt is not None
    assert doubt.reason == "the clock stepped by -3 h"
    machine.pass_ms(1)
    clock.require()
    assert clock.now_ms() == machine.wall_ms


@each_row(("apart_ms", "words"), [(3 * HOUR_MS, "3 h ahead of"), (-360_000, "6 min behind")])
def test_a_clock_that_stands_apart_goes_by_the_databases(apart_ms: int, words: str) -> None:
    machine = Machine()
    clock = machine.clock()
    right = machine.wall_ms - machine.monotonic_ms - apart_ms
    clock.compare(right)
    assert clock.now_ms() == machine.wall_ms - apart_ms
    doubt = clock.doubt()
    assert doubt is not None
    assert doubt.reason == f"the clock is {words} the database's clock"
    machine.pass_ms(STEADY_MS)
    clock.compare(machine.wall_ms - machine.monotonic_ms)
    assert clock.doubt() is None, "the other clock was steady for as long"


def test_a_clock_near_to_the_databases_is_trusted_and_goes_by_it() -> None:
    machine = Machine()
    clock = machine.clock()
    clock.compare(machine.wall_ms - machine.monotonic_ms - 2_000)
    assert clock.now_ms() == machine.wall_ms - 2_000
    clock.require()


def test_a_clock_that_is_always_trusted_goes_by_what_it_shows() -> None:
    machine = Machine()
    clock = Clock.trusted(lambda: machine.wall_ms)
    machine.wall_ms += 1000 * HOUR_MS
    assert clock.now_ms() == machine.wall_ms
    clock.require()
