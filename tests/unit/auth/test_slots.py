"""The table of last slots, as the processes of one data directory share it."""

from __future__ import annotations

import os
from pathlib import Path

from muniment.service.auth.nonces import CELLS, SLOTS, LastSlots

ADDRESS = bytes(19) + b"\1"
ALL = list(range(SLOTS))


def opened(path: Path, first: int = 3) -> LastSlots:
    """The table as a process opens it."""
    return LastSlots(path / "slots", lambda count: bytes([first]) * count)


def test_processes_that_take_turns_give_every_slot(tmp_path: Path) -> None:
    processes = [opened(tmp_path) for _ in range(3)]
    assert [processes[number % 3].take(ADDRESS, ALL) for number in range(SLOTS)] == [4, 5, 6, 7, 0, 1, 2, 3]


def test_the_next_free_slot_is_taken(tmp_path: Path) -> None:
    first, second = opened(tmp_path), opened(tmp_path)
    assert [first.take(ADDRESS, [1, 5]), second.take(ADDRESS, [1, 5]), first.take(ADDRESS, [1, 5])] == [5, 1, 5]


def test_a_new_table_begins_at_random_and_an_existing_one_goes_on(tmp_path: Path) -> None:
    assert LastSlots(tmp_path / "slots", os.urandom).take(ADDRESS, ALL) in ALL
    last = opened(tmp_path).take(ADDRESS, ALL)
    assert opened(tmp_path, first=0).take(ADDRESS, ALL) == (last + 1) % SLOTS
    status = (tmp_path / "slots").stat()
    assert (status.st_size, status.st_mode & 0o777) == (CELLS, 0o600)


def test_a_process_works_without_a_file_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "slots").mkdir()
    alone = opened(tmp_path)
    assert [alone.take(ADDRESS, ALL) for _ in range(3)] == [4, 5, 6]
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / "slots").symlink_to(tmp_path / "elsewhere")
    assert opened(tmp_path / "linked").take(ADDRESS, ALL) == 4
    assert not (tmp_path / "elsewhere").exists()
