"""Clocks of one machine's processes: what each tells the others, and which of them gives way."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from muniment.clock import Neighbours, Voice, outvoted_by
from muniment.clock.neighbours import BEAT_MS_MAX, SLOTS

HOUR_MS = 3_600_000
NOW_MS = 5_000_000
RIGHT = Voice(since_ms=1_000, offset_ms=0)


def ahead(since_ms: int, hours: int = 3) -> Voice:
    return Voice(since_ms, hours * HOUR_MS)


@pytest.mark.parametrize(
    ("own", "shown_ms", "others", "other"),
    [
        pytest.param(RIGHT, 0, [], None, id="alone"),
        pytest.param(RIGHT, 0, [Voice(500, 299_000)], None, id="near"),
        pytest.param(RIGHT, 0, [ahead(2_000)], None, id="a-younger-one-is-wrong"),
        pytest.param(ahead(2_000), 3 * HOUR_MS, [RIGHT], RIGHT, id="the-younger-one-gives-way"),
        pytest.param(RIGHT, 0, [Voice(3_000, 5), ahead(500)], None, id="two-against-an-older-one"),
        pytest.param(ahead(500), 3 * HOUR_MS, [RIGHT, Voice(3_000, 5)], RIGHT, id="an-older-one-against-two"),
        pytest.param(RIGHT, 0, [ahead(3_000, 3), ahead(3_000, -2)], None, id="two-that-do-not-agree"),
        pytest.param(None, 3 * HOUR_MS, [RIGHT], RIGHT, id="in-doubt-itself"),
        pytest.param(None, 0, [RIGHT], None, id="in-doubt-but-back"),
    ],
)
def test_who_gives_way(own: Voice | None, shown_ms: int, others: list[Voice], other: Voice | None) -> None:
    assert outvoted_by(own, shown_ms, others) == other


def test_processes_hear_each_other_and_not_themselves(tmp_path: Path) -> None:
    one, two = (Neighbours(tmp_path / "clocks", os.urandom) for _ in range(2))
    one.publish(RIGHT, NOW_MS)
    two.publish(ahead(2_000), NOW_MS)
    assert one.voices(NOW_MS + 1) == [ahead(2_000)]
    assert two.voices(NOW_MS + 1) == [RIGHT]


def test_who_is_in_doubt_or_has_ended_is_not_heard(tmp_path: Path) -> None:
    one, two = (Neighbours(tmp_path / "clocks", os.urandom) for _ in range(2))
    one.publish(RIGHT, NOW_MS)
    assert two.voices(NOW_MS + BEAT_MS_MAX - 1) == [RIGHT]
    assert two.voices(NOW_MS + BEAT_MS_MAX) == []
    assert two.voices(NOW_MS - 1) == [], "the machine was restarted"
    one.publish(None, NOW_MS + 1)
    assert two.voices(NOW_MS + 2) == []


def test_two_that_take_one_place_part_again(tmp_path: Path) -> None:
    one = Neighbours(tmp_path / "clocks", lambda _: (2).to_bytes(8))
    two = Neighbours(tmp_path / "clocks", lambda _: (2 + 2 * SLOTS).to_bytes(8))
    for tick in range(3):
        one.publish(RIGHT, NOW_MS + tick)
        two.publish(Voice(1_000, 9), NOW_MS + tick)
    assert one.voices(NOW_MS + 3) == [Voice(1_000, 9)]
    assert two.voices(NOW_MS + 3) == [RIGHT]


def test_the_file_has_room_on_the_disk(tmp_path: Path) -> None:
    Neighbours(tmp_path / "clocks", os.urandom)
    found = (tmp_path / "clocks").stat()
    assert found.st_blocks * 512 >= found.st_size  # on a full disk the first write would end the process


def test_more_processes_than_places_do_no_harm(tmp_path: Path) -> None:
    table = [Neighbours(tmp_path / "clocks", os.urandom) for _ in range(SLOTS + 1)]
    for each in table:
        each.publish(RIGHT, NOW_MS)
    assert len(table[-1].voices(NOW_MS)) == SLOTS
    assert len(table[0].voices(NOW_MS)) == SLOTS - 1
