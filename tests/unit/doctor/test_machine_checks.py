"""The checks of the machine, each on a machine that lacks what it looks for."""

from __future__ import annotations

import os
import shutil
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace

import pytest

from breaking import breaks
from muniment.operate.doctor import machine
from muniment.operate.doctor.findings import Examined, Level, ok, status_of, warn
from muniment.service.running.settings import Settings

GIB = 2**30
HERE = Examined(Settings())
MOUNTS = """22 1 8:1 / / rw - ext4 /dev/sda1 rw
23 22 0:40 / /srv rw - nfs4 files:/srv rw
24 23 8:2 / /srv/local\\040disk rw - xfs /dev/sdb1 rw
"""


def test_the_status_is_that_of_the_worst_finding() -> None:
    assert status_of([]) == 0
    assert status_of([ok("fine")]) == 0
    assert status_of([warn("slow", "do this"), ok("fine")]) == 1
    assert str(warn("slow", "do this", check="a")) == "warn  a: slow\n      do this"


@breaks("libraries")
def test_libraries_that_are_older_than_those_of_the_release_are_a_warning() -> None:
    installed = version("click")
    found = machine.check_libraries(HERE, tested={"click": "999.1", "msgspec": "0.0.1", "no-such-library": "1"})
    assert (found.level, f"click {installed} (999.1)" in found.message) == (Level.WARN, True)
    found = machine.check_libraries(HERE, tested={"click": installed, "msgspec": "0.0.1"})
    assert (found.level, "newer" in found.message, "click" in found.message) == (Level.OK, True, False)
    assert machine.check_libraries(HERE).level == Level.OK


def test_the_bill_of_materials_of_the_installation_is_found() -> None:
    assert {"click", "asyncpg", "btclib-secp256k1"} <= machine.tested_versions().keys()


@breaks("environment")
def test_a_variable_that_nothing_reads_is_a_warning_without_its_value() -> None:
    found = machine.check_environment(HERE, environ={"MUNIMENT_TLOG_NAMES": "a value", "MUNIMENT_PORT": "1"})
    assert (found.level, found.message) == (Level.WARN, "nothing reads MUNIMENT_TLOG_NAMES (MUNIMENT_TLOG_NAME?)")
    assert machine.check_environment(HERE, environ={"MUNIMENT_PORT": "1", "MUNIMENT_EMPTY": ""}).level == Level.OK


@breaks("descriptors")
def test_fewer_descriptors_than_connections_are_a_warning() -> None:
    found = machine.check_descriptors(Examined(Settings(connections_max=2**40)))
    assert (found.level, f"{2**40 + 128} are needed" in found.message) == (Level.WARN, True)
    assert machine.check_descriptors(Examined(Settings(connections_max=0))).level == Level.OK


@breaks("disk", "inodes")
@pytest.mark.parametrize(
    ("free_blocks", "free_inodes", "levels"),
    [(20_000, 500, [0, 0]), (9_000, 500, [1, 0]), (1_500, 500, [1, 0]), (500, 500, [2, 0]), (20_000, 90, [0, 1])],
)
def test_a_disk_without_bytes_or_inodes_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free_blocks: int, free_inodes: int, levels: list[int]
) -> None:
    disk = SimpleNamespace(
        f_bavail=free_blocks, f_bfree=free_blocks, f_frsize=2**20, f_blocks=100_000,
        f_favail=free_inodes, f_files=1000,
    )  # fmt: skip
    monkeypatch.setattr(os, "statvfs", lambda _: disk)  # a full disk of this size cannot be made
    examined = Examined(Settings(data_dir=tmp_path))
    assert [found.level for found in machine.check_space(examined)] == levels


@pytest.mark.parametrize(
    ("free", "level", "refused"),
    [
        (2 * GIB, Level.OK, ""),
        (2 * GIB - 1, Level.WARN, ": uploads are refused"),
        (GIB, Level.WARN, ": uploads are refused"),
        (GIB - 1, Level.FAIL, ": new records are refused"),
    ],
)
def test_a_disk_whose_reserve_is_used_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int, level: Level, refused: str
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(total=16 * GIB, free=free))
    found = machine.space_at(tmp_path)
    shown = f"{free // 2**20:,} MiB free at {tmp_path}, of which 1,024 MiB are kept"
    assert (found.level, found.message.startswith(shown + refused)) == (level, True), found
    assert ("uploads need 2,048 MiB free" in found.remedy) == (level != Level.OK)


def test_each_disk_that_the_service_stores_on_has_its_reserve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, other = tmp_path / "data", tmp_path / "other"
    for each in (data, other):
        each.mkdir()
    settings = Settings(data_dir=data, database_url=f"sqlite:///{other}/registry.db", blocks_url=f"file://{data}/none")
    devices, stat = {data: 1, other: 2}, Path.stat
    monkeypatch.setattr(
        Path, "stat", lambda path: SimpleNamespace(st_dev=devices[path]) if path in devices else stat(path)
    )  # the machine may have one disk only
    assert [(each.check, each.message.split(" at ")[1].split(",")[0]) for each in machine.check_space(
        Examined(settings)
    )] == [("", str(data)), ("", str(other)), ("inodes", str(data)), ("inodes", str(other))]  # fmt: skip
    monkeypatch.undo()
    assert [each.check for each in machine.check_space(Examined(settings))] == ["", "inodes"]


def test_a_directory_that_is_not_there_fails(tmp_path: Path) -> None:
    examined = Examined(Settings(data_dir=tmp_path / "none"))
    (space,) = machine.check_space(examined)
    assert machine.space_at(tmp_path / "none").level == Level.FAIL
    assert (space.level, machine.check_fsync(examined).level) == (Level.FAIL, Level.FAIL)


@breaks("fsync")
def test_a_slow_fsync_is_a_warning(tmp_path: Path) -> None:
    assert machine.check_fsync(Examined(Settings(data_dir=tmp_path)), seconds_max=0).level == Level.WARN
    assert machine.check_fsync(Examined(Settings(data_dir=tmp_path)), seconds_max=60).level == Level.OK
    assert list(tmp_path.iterdir()) == []


@breaks("file system")
@pytest.mark.parametrize(
    ("directory", "holds_database", "level"),
    [("/var", True, 0), ("/srv/data", True, 2), ("/srv/data", False, 1), ("/srv/local disk/data", True, 0)],
)
def test_a_network_file_system_is_noticed(directory: str, level: int, *, holds_database: bool) -> None:
    settings = Settings(
        data_dir=Path(directory), database_url="sqlite:///a.db" if holds_database else "postgresql:///a"
    )
    (found,) = machine.check_file_systems(Examined(settings), mounts=MOUNTS)
    assert found.level == level


def test_a_database_outside_of_the_data_directory_is_looked_at_too() -> None:
    settings = Settings(data_dir=Path("/var"), database_url="sqlite:////srv/data/a.db")
    found = machine.check_file_systems(Examined(settings), mounts=MOUNTS)
    assert [each.level for each in found] == [Level.OK, Level.FAIL]
