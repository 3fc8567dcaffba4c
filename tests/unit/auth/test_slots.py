"""The last slots of addresses."""

from __future__ import annotations

import os

from muniment.service.auth.nonces import SLOTS, LastSlots

ADDRESS, OTHER = bytes(19) + b"\1", bytes(19) + b"\2"
ALL = list(range(SLOTS))


def slots_after(first: int) -> LastSlots:
    return LastSlots(lambda count: bytes([first]) * count)


def test_one_address_gets_every_slot_in_turn() -> None:
    slots = slots_after(3)
    assert [slots.take(ADDRESS, ALL) for _ in ALL] == [4, 5, 6, 7, 0, 1, 2, 3]
    assert slots.take(OTHER, ALL) == 4


def test_the_next_free_slot_is_taken() -> None:
    slots = slots_after(3)
    assert [slots.take(ADDRESS, [1, 5]) for _ in range(3)] == [5, 1, 5]


def test_the_first_slot_is_random() -> None:
    assert LastSlots(os.urandom).take(ADDRESS, ALL) in ALL
    assert {slots_after(first).take(ADDRESS, ALL) for first in range(256)} == {*ALL}
