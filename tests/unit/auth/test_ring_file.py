"""The file that holds the ring of a data directory: who may read it, who makes it, how it changes."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from muniment.service.auth.secrets import RING_SIZE_MAX, RingFile, Secret
from muniment.service.running.settings import SettingError

AT_ONCE = 4


def in_processes(program: str, data_dir: Path) -> list[str]:
    """The output of `AT_ONCE` processes that run `program` at the same moment, told to go by closing their input."""
    source = f"import sys; from pathlib import Path; from muniment.service.auth.secrets import RingFile\n{program}"
    started = [
        subprocess.Popen(
            [sys.executable, "-c", source, str(data_dir)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(AT_ONCE)
    ]
    for process in started:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
    for process in started:
        assert process.stdin is not None
        process.stdin.close()
        process.stdin = None
    said = [process.communicate(timeout=60)[0] for process in started]
    assert [process.returncode for process in started] == [0] * AT_ONCE
    return said


def test_the_first_use_makes_one_secret_that_stays(tmp_path: Path) -> None:
    data_dir = tmp_path / "not" / "there" / "yet"
    (raw,) = RingFile(data_dir)()
    assert len(raw) == 32
    assert RingFile(data_dir)() == (raw,)
    assert RingFile(tmp_path / "another")() != (raw,)


def test_only_its_owner_may_read_the_file_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        ring = RingFile(tmp_path)
        assert stat.S_IMODE(ring.path.stat().st_mode) == 0o600
        ring.rotate()
        assert stat.S_IMODE(ring.path.stat().st_mode) == 0o600
        ring.retire()
        assert stat.S_IMODE(ring.path.stat().st_mode) == 0o600
    finally:
        os.umask(before)


def test_nothing_lies_beside_the_file_after_a_change(tmp_path: Path) -> None:
    ring = RingFile(tmp_path)
    ring.rotate()
    ring.retire()
    assert [path.name for path in tmp_path.iterdir()] == ["secrets"]


@pytest.mark.long
def test_processes_that_start_at_once_agree_on_one_secret(tmp_path: Path) -> None:
    for number in range(3):
        data_dir = tmp_path / str(number)
        program = "print('up', flush=True); sys.stdin.read(); print(RingFile(Path(sys.argv[1]))()[0].hex())"
        said = in_processes(program, data_dir)
        assert len(set(said)) == 1
        assert RingFile(data_dir)()[0].hex() == said[0].strip()
        assert [path.name for path in data_dir.iterdir()] == ["secrets"]


@pytest.mark.programs
def test_rotations_by_processes_at_once_are_all_kept(tmp_path: Path) -> None:
    first = RingFile(tmp_path)()
    program = (
        "ring = RingFile(Path(sys.argv[1])); ring(); print('up', flush=True); sys.stdin.read(); print(ring.rotate().id)"
    )
    said = in_processes(program, tmp_path)
    ring = RingFile(tmp_path)()
    assert len(ring) == 1 + AT_ONCE
    assert ring[-1:] == first
    assert {Secret.derived_from(raw).id for raw in ring[:-1]} == {each.strip() for each in said}


def test_rotating_puts_a_new_secret_in_front(tmp_path: Path) -> None:
    ring = RingFile(tmp_path)
    (old,) = ring()
    new = ring.rotate()
    assert len(ring()) == 2
    assert ring()[1] == old
    assert Secret.derived_from(ring()[0]).id == new.id


def test_retiring_drops_the_oldest(tmp_path: Path) -> None:
    ring = RingFile(tmp_path)
    (old,) = ring()
    ring.rotate()
    assert ring.retire().id == Secret.derived_from(old).id
    assert len(ring()) == 1
    assert old not in ring()


def test_the_last_secret_cannot_be_retired(tmp_path: Path) -> None:
    ring = RingFile(tmp_path)
    before = ring()
    with pytest.raises(SettingError, match="rotate first"):
        ring.retire()
    assert RingFile(tmp_path)() == before


def test_a_full_ring_cannot_be_rotated(tmp_path: Path) -> None:
    ring = RingFile(tmp_path)
    for _ in range(RING_SIZE_MAX - 1):
        ring.rotate()
    before = ring()
    with pytest.raises(SettingError, match="retire one first"):
        ring.rotate()
    assert RingFile(tmp_path)() == before
    assert len(before) == RING_SIZE_MAX


def test_a_change_by_another_is_seen_at_the_next_call(tmp_path: Path) -> None:
    running, command = RingFile(tmp_path), RingFile(tmp_path)
    (old,) = running()
    command.rotate()
    assert running() == command()
    assert len(running()) == 2
    command.retire()
    assert old not in running()


DAMAGES = [b"", b"c0ffee", b"\xff\xfe", b"\xc3\xa9" * 32, b"0" * 63]


@pytest.mark.parametrize("content", DAMAGES, ids=repr)
def test_a_damaged_file_stops_a_start_and_is_not_repeated_or_replaced(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "secrets"
    path.write_bytes(content)
    with pytest.raises(SettingError, match=r"secrets cannot be read") as caught:
        RingFile(tmp_path)()
    assert "c0ffee" not in str(caught.value)
    for change in (RingFile(tmp_path).rotate, RingFile(tmp_path).retire):
        with pytest.raises(SettingError):
            change()
    assert path.read_bytes() == content


@pytest.mark.parametrize("content", [None, *DAMAGES], ids=repr)
def test_a_file_damaged_under_a_running_service_leaves_the_last_ring_in_use(
    tmp_path: Path, content: bytes | None
) -> None:
    running = RingFile(tmp_path)
    before, text = running(), running.path.read_text()
    running.path.unlink()
    if content is not None:
        running.path.write_bytes(content)
    assert running() == before
    assert running() == before
    running.path.unlink(missing_ok=True)
    running.path.write_text("0b" * 32 + "\n" + text)
    assert running() == (b"\x0b" * 32, *before)
