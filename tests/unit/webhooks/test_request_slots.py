"""Slots for requests: which receivers get one, which keep it, and which are slow."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from muniment.service.resources.webhooks.sending import PER_HOST_MAX, PER_HOST_SLOW_MAX, REQUESTS_MAX, SLOW_MAX, Slots

MINUTE_MS = 60_000


@dataclass(eq=False)
class Hooked:
    """A hook, as far as slots need it."""

    id: bytes
    failures: int = 0


@dataclass(eq=False)
class Sending:
    """A request, as far as slots need it."""

    hook: Hooked
    host: str
    sends_since_ms: int | None = None


@dataclass
class World:
    """Slots, and their clock."""

    now_ms: int = 1_000_000
    slots: Slots[Any] = field(init=False)
    count: int = 0

    def __post_init__(self) -> None:
        self.slots = Slots(lambda: self.now_ms)

    def senders(self, count: int, *, host: str = "", failures: int = 0) -> list[Any]:
        """New senders, each with its own host unless `host` is given."""
        names = range(self.count, self.count + count)
        self.count += count
        return [Sending(Hooked(bytes([name]), failures), host or f"host {name}") for name in names]

    def send(self, senders: list[Any]) -> list[Any]:
        """Begin requests of those that get a slot, and return them."""
        given = self.slots.take(senders)
        for sender in given:
            sender.sends_since_ms = self.now_ms
        return given

    def advance(self, ms: int) -> list[Any]:
        """Let time pass; end and return the requests that lose their slots."""
        self.now_ms += ms
        excess = self.slots.note_slow()
        for sender in excess:
            self.end(sender)
        return excess

    def end(self, sender: Any) -> None:
        sender.sends_since_ms = None
        self.slots.leave(sender)


@pytest.fixture
def world() -> World:
    return World()


def test_requests_are_limited_in_total_and_by_host(world: World) -> None:
    crowded, others = world.senders(10, host="one"), world.senders(REQUESTS_MAX)
    assert world.send(crowded) == crowded[:PER_HOST_MAX]
    assert world.slots.is_short
    assert world.send(others) == others[: REQUESTS_MAX - PER_HOST_MAX]
    world.end(crowded[0])
    assert world.send([crowded[5]]) == [crowded[5]]
    assert not world.slots.is_short


def test_slow_receivers_leave_a_slot_at_their_host_to_quick_ones(world: World) -> None:
    """Others may have receivers at the host of a quick one, and those may become slow."""
    failing, honest, slowing = (world.senders(count, host="one", failures=n) for count, n in ((10, 1), (1, 0), (5, 0)))
    assert world.send(failing) == failing[:PER_HOST_SLOW_MAX]
    assert world.send(slowing + honest) == slowing[:1]
    assert world.advance(1_000) == []
    assert world.advance(1) == slowing[:1]
    assert world.send([*failing[3:], *slowing[:1], *honest]) == honest


def test_failing_receivers_leave_slots_to_the_others(world: World) -> None:
    failing, quick = world.senders(40, failures=1), world.senders(10)
    assert world.send(failing) == failing[:SLOW_MAX]
    assert world.send(quick) == quick[: REQUESTS_MAX - SLOW_MAX]


def test_receivers_that_become_slow_leave_slots_within_a_second(world: World) -> None:
    """However many hooks wait to become slow."""
    sixty, honest = world.senders(60), world.senders(1)
    assert world.send(sixty) == sixty[:32]
    assert world.advance(1_000) == []
    assert world.advance(1) == sixty[24:32]
    assert world.send([*sixty[32:], *honest]) == sixty[32:40]
    assert world.advance(1_001) == sixty[32:40]
    # The first ones count as slow now, and there is no slow slot.
    assert world.send([*sixty[24:], *honest]) == sixty[40:48]
    for sender in world.advance(1_001):
        assert sender in sixty[40:48]
    assert world.send([*sixty[24:48], *sixty[48:], *honest]) == sixty[48:56]
    world.advance(1_001)
    assert world.send([*sixty[24:], *honest]) == [*sixty[56:], *honest]


def test_a_slow_receiver_counts_as_slow_for_ten_minutes(world: World) -> None:
    (sender,) = world.send(world.senders(1))
    assert world.advance(1_001) == []  # there is a slow slot
    assert world.slots.may_keep(sender)
    assert world.slots.is_slow(sender)
    sender.sends_since_ms = None
    world.advance(9 * MINUTE_MS)
    world.slots.forget_quick()
    assert world.slots.is_slow(sender)
    world.advance(MINUTE_MS + 1)
    assert not world.slots.is_slow(sender)
    assert not world.slots.may_keep(sender)  # it needs a quick slot now
    world.slots.forget_quick()
    assert not world.slots.is_slow(sender)


def test_a_change_of_a_hook_does_not_make_its_receiver_quick(world: World) -> None:
    (sender,) = world.send(world.senders(1))
    world.advance(1_001)
    world.end(sender)
    again: Any = Sending(sender.hook, "another host")
    assert world.slots.is_slow(again)


def test_a_receiver_that_fails_in_a_quick_slot_frees_it(world: World) -> None:
    (sender,) = world.send(world.senders(1))
    assert world.slots.may_keep(sender)
    sender.hook.failures = 1
    assert not world.slots.may_keep(sender)
