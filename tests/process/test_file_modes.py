"""Only their user may read the files of the service and its commands, under any umask."""

from __future__ import annotations

import asyncio
import os
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

import warm
from builders import deploy
from service import STOP_SECONDS_MAX, Service


@pytest.fixture(autouse=True)
def _generous() -> Iterator[None]:  # pyright: ignore[reportUnusedFunction] - pytest uses it for every test
    before = os.umask(0)
    yield
    os.umask(before)


def open_to_others(folder: Path) -> list[str]:
    """What somebody else may read, write or enter."""
    paths = [folder, *folder.rglob("*")]
    assert len(paths) > 1
    return [str(path) for path in paths if stat.S_IMODE(path.stat().st_mode) & 0o077]


def command(*words: str) -> None:
    """Run `muniment WORDS` under the umask of this process."""
    done = warm.run(*words)
    assert done.returncode == 0, done.stderr


async def deployed(url: str) -> str:
    async with httpx2.AsyncClient(base_url=url) as client:
        return await deploy(client)


def test_files_that_serve_and_backup_make_are_readable_by_their_user_alone(tmp_path: Path) -> None:
    data, backup, copy = tmp_path / "data", tmp_path / "backup", tmp_path / "copy"
    with Service(data) as service:
        asyncio.run(deployed(service.url))
        assert (data / "muniment.db-wal").stat().st_size > 0
        assert open_to_others(data) == []
        command("backup", str(backup), "--data-dir", str(data))
    command("restore", str(backup), "--data-dir", str(copy), "--rotate")
    assert open_to_others(backup) == []
    assert open_to_others(copy) == []


def test_files_that_other_commands_make_are_readable_by_their_user_alone(tmp_path: Path) -> None:
    data = tmp_path / "data"
    command("migrate", "--data-dir", str(data))
    assert open_to_others(data) == []
    with Service(data):
        command("secrets", "rotate", "--data-dir", str(data))
    assert open_to_others(data) == []


def test_a_data_directory_that_others_may_enter_is_left_so_and_named_at_start(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir(mode=0o755)
    process = warm.popen(["serve", "--port", "0", "--data-dir", str(data)], os.environ, stderr=subprocess.PIPE)
    assert process.stderr is not None
    said = process.stderr.readline()
    process.terminate()
    process.communicate(timeout=STOP_SECONDS_MAX)
    assert f"other users of this machine can enter {data}" in said
    assert stat.S_IMODE(data.stat().st_mode) == 0o755
    assert stat.S_IMODE((data / "muniment.db").stat().st_mode) == 0o600
