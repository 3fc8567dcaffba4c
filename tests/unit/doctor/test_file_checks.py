"""The checks of settings and files, each on a data directory with one fault."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from breaking import breaks
from mounts import mounted, needs_mounts
from muniment.operate.doctor import machine
from muniment.operate.doctor.findings import Examined, Level
from muniment.service.auth.secrets import RingFile
from muniment.service.running.settings import Settings
from muniment.service.storage import open_database


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    data = tmp_path / "data"
    data.mkdir(mode=0o700)
    return Settings(data_dir=data)


@pytest.fixture
def migrated(settings: Settings) -> Settings:
    """A data directory with a database."""

    async def migrate() -> None:
        opened = open_database(settings.database_url, data_dir=settings.data_dir)
        await opened.migrate()
        await opened.close()

    asyncio.run(migrate())
    return settings


@breaks("secrets")
def test_secrets_that_others_can_read_fail(settings: Settings) -> None:
    assert machine.check_secrets(Examined(settings)).level == Level.WARN  # there are none
    path = RingFile(settings.data_dir).path
    assert machine.check_secrets(Examined(settings)).level == Level.OK
    path.chmod(0o640)
    assert (
        machine.check_secrets(Examined(settings)).level,
        "chmod 600" in machine.check_secrets(Examined(settings)).remedy,
    ) == (2, True)


def test_damaged_secrets_fail_and_are_not_shown(settings: Settings) -> None:
    (settings.data_dir / "secrets").write_text("12ab")
    found = machine.check_secrets(Examined(settings))
    assert (found.level, "12ab" in str(found)) == (Level.FAIL, False)


def test_a_damaged_secret_of_a_setting_fails(settings: Settings) -> None:
    broken = Settings(data_dir=settings.data_dir, secret="zz" * 32)
    found = machine.check_secrets(Examined(broken))
    assert found.message.startswith("secret must be 1 to ")  # the file is not used, and not at fault
    assert "MUNIMENT_SECRET" in found.remedy
    assert (found.level, "zz" in str(found)) == (Level.FAIL, False)


@breaks("data directory")
def test_a_data_directory_that_others_can_enter_is_a_warning(settings: Settings) -> None:
    assert machine.check_modes(Examined(settings)).level == Level.OK
    settings.data_dir.chmod(0o755)
    assert machine.check_modes(Examined(settings)).level == Level.WARN


@breaks("write-ahead log")
def test_a_long_log_is_a_warning(settings: Settings) -> None:
    with (settings.data_dir / "muniment.db-wal").open("wb") as log:
        log.truncate(2 * machine.LOG_BYTES_MAX)  # a hole: it takes no space
    assert [found.level for found in machine.check_write_ahead_log(Examined(settings))] == [Level.WARN]
    (settings.data_dir / "muniment.db-wal").unlink()
    assert [found.level for found in machine.check_write_ahead_log(Examined(settings))] == [Level.OK]


@breaks("rights")
@needs_mounts
def test_a_database_that_this_user_cannot_write_fails(tmp_path: Path) -> None:
    data = tmp_path / "volume"
    data.mkdir()
    with mounted(data) as volume:
        (data / "muniment.db").touch()
        assert [found.level for found in machine.check_file_rights(Examined(Settings(data_dir=data)))] == [Level.OK]
        volume.remount("ro")
        (found,) = machine.check_file_rights(Examined(Settings(data_dir=data)))
        assert (found.level, f"{data}/muniment.db" in found.message) == (Level.FAIL, True)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a file to another user")
def test_a_database_file_of_another_user_is_a_warning(migrated: Settings) -> None:
    os.chown(migrated.data_dir / "muniment.db", 65_534, 65_534)
    (found,) = machine.check_file_rights(Examined(migrated))
    assert (found.level, "muniment.db" in found.message) == (Level.WARN, True)


@pytest.mark.parametrize("is_made_again", [False, True])
def test_a_log_that_sqlite_removes_at_this_moment_is_no_fault(
    migrated: Settings, monkeypatch: pytest.MonkeyPatch, *, is_made_again: bool
) -> None:
    log = migrated.data_dir / "muniment.db-shm"
    log.touch()
    access, asked = os.access, list[Path]()

    def access_of_a_removed_log(path: Path, mode: int) -> bool:
        if path != log:
            return access(path, mode)
        asked.append(path)
        log.rename(log.with_name("removed"))
        is_open = access(path, mode)
        if is_made_again:
            log.touch()
        return is_open

    monkeypatch.setattr(os, "access", access_of_a_removed_log)
    assert [found.level for found in machine.check_file_rights(Examined(migrated))] == [Level.OK]
    assert asked == [log]


@breaks("backup")
def test_a_backup_that_is_missing_damaged_or_old_is_noticed(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path / "data")
    (tmp_path / "data").mkdir()
    directory = tmp_path / "backup"
    directory.mkdir()
    assert machine.check_backup(Examined(settings, "", directory, 0)).level == Level.FAIL
    (directory / "backup.json").write_text("{")
    assert machine.check_backup(Examined(settings, "", directory, 0)).level == Level.FAIL
    (directory / "backup.json").write_text(
        '{"format": 1, "release": "0.1.0", "madeAt": "1970-01-02T00:00:00.000Z", '
        '"snapshot": "snapshot-0123456789abcdef", "sha256": "", "blocks": "files", "secrets": null}'
    )
    assert machine.check_backup(Examined(settings, "", None, 0)).level == Level.WARN  # none was noted
    settings.backup_mark.touch()
    os.utime(settings.backup_mark, (86_400, 86_400))
    for place in (directory, None):
        ages = [machine.check_backup(Examined(settings, "", place, 86_400 + hours * 3600)) for hours in (25, 27, -1)]
        assert [found.level for found in ages] == [Level.OK, Level.WARN, Level.WARN]
        assert "in the future" in ages[2].message


def test_a_date_that_is_none_in_a_backup_fails(tmp_path: Path) -> None:
    (tmp_path / "backup.json").write_text(
        '{"format": 1, "release": "0.1.0", "madeAt": "1970-99-02T00:00:00.000Z", '
        '"snapshot": "snapshot-0123456789abcdef", "sha256": "", "blocks": "files", "secrets": null}'
    )
    assert machine.check_backup(Examined(Settings(), "", tmp_path, 0)).level == Level.FAIL
