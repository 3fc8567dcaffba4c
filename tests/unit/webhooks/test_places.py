"""The places of deliveries: who gets one, who keeps it, and who is slow."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from muniment.webhooks.places import PER_HOST_MAX, PER_HOST_SLOW_MAX, REQUESTS_MAX, SLOW_MAX, Places

MINUTE_MS = 60_000


@dataclass(eq=False)
class Hooked:
    """What a lane shows of its hook."""

    id: bytes
    failures: int = 0


@dataclass(eq=False)
class Sending:
    """A lane, as far as places know it."""

    hook: Hooked
    host: str
    sends_since_ms: int | None = None


@dataclass
class World:
    """Places, and their clock."""

    now_ms: int = 1_000_000
    places: Places = field(init=False)
    count: int = 0

    def __post_init__(self) -> None:
        self.places = Places(lambda: self.now_ms)

    def lanes(self, count: int, *, host: str = "", failures: int = 0) -> list[Any]:
        """New ones, each with a host of its own unless one is given."""
        names = range(self.count, self.count + count)
        self.count += count
        return [Sending(Hooked(bytes([name]), failures), host or f"host {name}") for name in names]

    def send(self, lanes: list[Any]) -> list[Any]:
        """Those that got a place; their requests begin."""
        given = self.places.take(lanes)
        for lane in given:
            lane.sends_since_ms = self.now_ms
        return given

    def turn(self, ms: int) -> list[Any]:
        """Those that lose their places after so many milliseconds."""
        self.now_ms += ms
        gone = self.places.note_slow()
        for lane in gone:
            self.end(lane)
        return gone

    def end(self, lane: Any) -> None:
        lane.sends_since_ms = None
        self.places.leave(lane)


@pytest.fixture
def world() -> World:
    return World()


def test_so_many_requests_are_on_their_way_and_so_many_to_one_host(world: World) -> None:
    crowded, others = world.lanes(10, host="one"), world.lanes(REQUESTS_MAX)
    assert world.send(crowded) == crowded[:PER_HOST_MAX]
    assert world.places.is_short
    assert world.send(others) == others[: REQUESTS_MAX - PER_HOST_MAX]
    world.end(crowded[0])
    assert world.send([crowded[5]]) == [crowded[5]]
    assert not world.places.is_short


def test_slow_ones_leave_a_place_at_their_host_to_quick_ones(world: World) -> None:
    """Strangers may have receivers at the host of an honest one, and make them slow."""
    failing, honest, turning = (world.lanes(count, host="one", failures=n) for count, n in ((10, 1), (1, 0), (5, 0)))
    assert world.send(failing) == failing[:PER_HOST_SLOW_MAX]
    assert world.send(turning + honest) == turning[:1]
    assert world.turn(1_000) == []
    assert world.turn(1) == turning[:1]
    assert world.send([*failing[3:], *turning[:1], *honest]) == honest


def test_those_that_fail_leave_places_to_the_others(world: World) -> None:
    failing, quick = world.lanes(40, failures=1), world.lanes(10)
    assert world.send(failing) == failing[:SLOW_MAX]
    assert world.send(quick) == quick[: REQUESTS_MAX - SLOW_MAX]


def test_those_that_become_slow_leave_places_within_a_second(world: World) -> None:
    """However many hooks wait for their turn to be slow."""
    sixty, honest = world.lanes(60), world.lanes(1)
    assert world.send(sixty) == sixty[:32]
    assert world.turn(1_000) == []
    assert world.turn(1) == sixty[24:32]
    assert world.send([*sixty[32:], *honest]) == sixty[32:40]
    assert world.turn(1_001) == sixty[32:40]
    # Those of before are among the slow ones now, for whom there is no place.
    assert world.send([*sixty[24:], *honest]) == sixty[40:48]
    for lane in world.turn(1_001):
        assert lane in sixty[40:48]
    assert world.send([*sixty[24:48], *sixty[48:], *honest]) == sixty[48:56]
    world.turn(1_001)
    assert world.send([*sixty[24:], *honest]) == [*sixty[56:], *honest]


def test_one_that_was_slow_is_taken_for_slow_for_ten_minutes_whatever_it_does(world: World) -> None:
    (lane,) = world.send(world.lanes(1))
    assert world.turn(1_001) == []  # there is a place among the slow ones
    assert world.places.may_keep(lane)
    assert world.places.is_slow(lane)
    lane.sends_since_ms = None
    world.turn(9 * MINUTE_MS)
    world.places.forget_quick()
    assert world.places.is_slow(lane)
    world.turn(MINUTE_MS + 1)
    assert not world.places.is_slow(lane)
    assert not world.places.may_keep(lane)  # a place among the quick ones is its due now
    world.places.forget_quick()
    assert not world.places.is_slow(lane)


def test_another_lane_of_the_same_hook_is_as_slow(world: World) -> None:
    """To change a hook makes nobody quick."""
    (lane,) = world.send(world.lanes(1))
    world.turn(1_001)
    world.end(lane)
    again: Any = Sending(lane.hook, "another host")
    assert world.places.is_slow(again)


def test_one_that_fails_while_it_has_a_place_of_the_quick_ones_gives_it_back(world: World) -> None:
    (lane,) = world.send(world.lanes(1))
    assert world.places.may_keep(lane)
    lane.hook.failures = 1
    assert not world.places.may_keep(lane)
