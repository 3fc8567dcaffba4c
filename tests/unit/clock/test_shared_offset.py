"""The last trusted offset, as the processes of one data directory share it."""

from __future__ import annotations

import os
from pathlib import Path

from muniment.service.running.clock import FRESH_MS, SharedOffset

NOW_MS = 5_000_000
OFFSET_MS = 1_795_204_080_123


def test_a_process_reads_what_another_wrote_while_it_is_fresh(tmp_path: Path) -> None:
    one, two = (SharedOffset(tmp_path / "clock") for _ in range(2))
    assert two.read(NOW_MS) is None
    one.write(OFFSET_MS, NOW_MS)
    assert two.read(NOW_MS) == OFFSET_MS
    assert two.read(NOW_MS + FRESH_MS - 1) == OFFSET_MS
    assert two.read(NOW_MS + FRESH_MS) is None
    assert two.read(NOW_MS - 1) is None, "the machine was restarted"
    two.write(-OFFSET_MS, NOW_MS + 1)
    assert one.read(NOW_MS + 1) == -OFFSET_MS


def test_a_file_that_was_shortened_has_no_offset_until_the_next_one_is_written(tmp_path: Path) -> None:
    shared = SharedOffset(tmp_path / "clock")
    shared.write(OFFSET_MS, NOW_MS)
    os.truncate(tmp_path / "clock", 0)
    assert shared.read(NOW_MS) is None
    shared.write(OFFSET_MS, NOW_MS)
    assert shared.read(NOW_MS) == OFFSET_MS
