"""Which clients wrote when, known to all processes of one data directory."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from muniment.service.storage.replication.recent_writers import CELLS, RecentWriters

NOTE = """import sys; from pathlib import Path
from muniment.service.storage.replication.recent_writers import RecentWriters
RecentWriters(Path(sys.argv[1])).note(sys.argv[2])"""


def test_a_write_is_remembered_for_its_client(tmp_path: Path) -> None:
    writers = RecentWriters(tmp_path / "writers")
    before = time.monotonic_ns()
    writers.note("192.0.2.1")
    assert before <= writers.last_ns("192.0.2.1", time.monotonic_ns()) <= time.monotonic_ns()
    assert writers.last_ns("192.0.2.2", time.monotonic_ns()) == 0


def test_another_process_knows_it_too(tmp_path: Path) -> None:
    writers = RecentWriters(tmp_path / "writers")
    before = time.monotonic_ns()
    subprocess.run([sys.executable, "-c", NOTE, str(tmp_path / "writers"), "192.0.2.1"], check=True)
    assert writers.last_ns("192.0.2.1", time.monotonic_ns()) > before


def test_a_time_to_come_is_from_before_a_restart_of_the_machine(tmp_path: Path) -> None:
    writers = RecentWriters(tmp_path / "writers")
    writers.note("192.0.2.1")
    assert writers.last_ns("192.0.2.1", 1) == 0


def test_the_file_keeps_its_size_and_mode_for_any_number_of_writers(tmp_path: Path) -> None:
    writers = RecentWriters(tmp_path / "writers")
    for number in range(2 * CELLS):
        writers.note(str(number))
    status = (tmp_path / "writers").stat()
    assert (status.st_size, status.st_mode & 0o777) == (8 * CELLS, 0o600)
    assert all(writers.last_ns(str(number), time.monotonic_ns()) for number in range(2 * CELLS))
