"""The memory that processes share: slots, another process, restarts of the machine, files that cannot be."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest
from limited import SECOND_NS, UPTIME_NS, Clock, make_limiter

from each_row import each_row
from muniment.service.running.limits.buckets import ROW, Memory, open_memory

CHARGE = """import sys; from pathlib import Path; from limited import *
limiter = make_limiter(Clock(), Memory.at(Path(sys.argv[1])))
print([limiter.client("192.0.2.1").client.charge(1) for _ in range(int(sys.argv[2]))].count(0))"""


def charged_elsewhere(path: Path, times: int) -> subprocess.Popen[str]:
    """Another process that charges so often; it prints how often it was admitted."""
    return subprocess.Popen(
        [sys.executable, "-c", CHARGE, str(path), str(times)],
        cwd=Path(__file__).parent, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip


@pytest.mark.programs
def test_two_processes_count_together(tmp_path: Path) -> None:
    limiter = make_limiter(Clock(), Memory.at(tmp_path / "rates"))
    assert [limiter.client("192.0.2.1").client.charge(1) for _ in range(40)].count(0) == 40
    with charged_elsewhere(tmp_path / "rates", 100) as other:
        assert other.communicate()[0].strip() == "60"
    assert limiter.client("192.0.2.1").client.charge(1) > 0
    assert limiter.client("192.0.2.2").client.charge(1) == 0


def test_the_file_is_ours_alone_and_stays_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "rates"
    limiter = make_limiter(Clock(), Memory.at(path))
    size = path.stat().st_size
    for number in range(2_000):
        limiter.client(f"10.0.{number >> 8}.{number & 255}").client.charge(1)
    assert path.stat().st_size == size <= 5 * 2**20
    assert path.stat().st_blocks * 512 >= size  # room on the disk is reserved
    assert path.stat().st_mode & 0o777 == 0o600


def test_slots_differ_from_machine_to_machine_and_cannot_be_foreseen(tmp_path: Path) -> None:
    one, other = Memory.at(tmp_path / "one"), Memory.at(tmp_path / "other")
    assert one.slots("192.0.2.1") == Memory.at(tmp_path / "one").slots("192.0.2.1")
    assert one.slots("192.0.2.1") != other.slots("192.0.2.1")
    first, second = one.slots("192.0.2.1")
    assert 0 <= first < ROW <= second < 2 * ROW


def test_other_clients_are_served_while_a_thousand_are_over_their_limits() -> None:
    clock = Clock()
    limiter = make_limiter(clock)
    for number in range(1_000):
        busy = limiter.client(f"10.1.{number >> 8}.{number & 255}").client
        while busy.charge(100) == 0:
            pass
    refused = sum(limiter.client(f"10.2.{number >> 8}.{number & 255}").client.wait_ns(1) > 0 for number in range(8_600))
    assert refused <= 10  # two are expected: one in 4,300


@each_row("row", [0, 1])
def test_who_shares_one_slot_with_a_busy_client_loses_nothing(row: int) -> None:
    clock = Clock()
    memory = Memory.of_process()
    limiter = make_limiter(clock, memory)
    slot = memory.slots("192.0.2.1")[row]
    addresses = (f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}" for number in range(2**24))
    shares = next(address for address in addresses if memory.slots(address)[row] == slot)
    busy = limiter.client(shares).client
    while busy.charge(1) == 0:
        pass
    quiet = limiter.client("192.0.2.1").client
    assert [quiet.charge(1) for _ in range(100)] == [0] * 100
    assert quiet.charge(1) > 0


def test_after_a_restart_of_the_machine_no_client_is_locked_out(tmp_path: Path) -> None:
    before = make_limiter(Clock(), Memory.at(tmp_path / "rates"))
    for address in ("192.0.2.1", "192.0.2.2"):
        while before.client(address).client.charge(1) == 0:
            pass
    clock = Clock(30 * SECOND_NS)
    after = make_limiter(clock, Memory.at(tmp_path / "rates"))
    assert after.client("192.0.2.1").client.charge(100) == 0
    clock.now_ns = UPTIME_NS + SECOND_NS  # the moment that was noted before the restart
    assert after.client("192.0.2.1").client.charge(100) == 0
    assert after.client("192.0.2.2").client.charge(100) == 0  # who did not come in between


@each_row("seconds", [-3_000, -15, -5, 5, 3_000])
def test_a_clock_that_jumps_makes_no_client_wait_longer_than_two_windows(seconds: float) -> None:
    clock = Clock()
    client = make_limiter(clock).client("192.0.2.1").client
    while client.charge(1) == 0:
        pass
    client.owe(1_000)
    clock.advance(seconds)
    assert client.charge(1) <= 2 * 10 * SECOND_NS
    clock.advance(20)
    assert client.charge(100) == 0
    assert client.charge(1) > 0  # and counting goes on


def test_a_file_of_another_layout_is_begun_anew(tmp_path: Path) -> None:
    path = tmp_path / "rates"
    path.write_bytes(b"another layout" * 2**19)
    client = make_limiter(Clock(), Memory.at(path)).client("192.0.2.1").client
    assert client.charge(100) == 0
    assert client.charge(1) > 0
    assert path.stat().st_size == 14 * 2**19  # a process of that layout may still use the rest


def test_where_no_file_can_be_a_process_counts_for_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    client = make_limiter(Clock(), open_memory(tmp_path / "missing" / "rates")).client("192.0.2.1").client
    assert client.charge(100) == 0
    assert client.charge(1) > 0
    assert "each process for itself" in capsys.readouterr().out


def test_a_full_disk_is_noticed_at_the_opening(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    client = make_limiter(Clock(), open_memory(tmp_path / "rates")).client("192.0.2.1").client
    assert client.charge(100) == 0
    assert "No space left" in capsys.readouterr().out


def test_a_link_at_its_place_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_bytes(b"precious")
    (tmp_path / "rates").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="rates"):
        Memory.at(tmp_path / "rates")
    assert (tmp_path / "elsewhere").read_bytes() == b"precious"
