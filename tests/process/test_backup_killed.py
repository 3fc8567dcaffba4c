"""SIGKILL before each step of `muniment backup` and `restore` towards the disk, and then the same command again."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any

import httpx2
import pytest

from backing_up import fill
from builders import Bundle, TriggerDraft, deploy, register
from muniment.operate.restore import PLACEHOLDER

KILLED = -9
# No command needs fewer steps than the least, by far; so the test has not stopped looking too early.
STEPS_MIN, STEPS_MAX = 15, 500

pytestmark = pytest.mark.long


class Commands:
    """Commands that may be killed on their way."""

    def __init__(self) -> None:
        program = [sys.executable, str(Path(__file__).with_name("dies_at.py"))]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("MUNIMENT_")}
        self._process = subprocess.Popen(
            program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
        )

    def run(self, *words: str | Path, step: int = 1_000_000) -> int:
        """The status; -9 when it was killed, at `step`."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps([step, [str(word) for word in words]]), file=self._process.stdin, flush=True)
        return int(self._process.stdout.readline())

    def close(self) -> str:
        """What all of them have said on standard error."""
        _, said = self._process.communicate(timeout=60)
        return said


@pytest.fixture
def commands() -> Iterator[Commands]:
    started = Commands()
    yield started
    said = started.close()
    assert "Traceback" not in said


def registry(data: Path, versions: range) -> None:
    """Deploy functions, each with a trigger."""

    async def filled(client: httpx2.AsyncClient) -> None:
        for number in versions:
            await register(client, TriggerDraft(await deploy(client, Bundle(version=f"{number}.0.0"))))

    fill(data, filled)


def contents(data: Path) -> dict[str, Any]:
    """What a registry consists of."""
    with closing(sqlite3.connect(f"{(data / 'muniment.db').as_uri()}?mode=ro&immutable=1", uri=True)) as connection:
        # But for the epoch: every restore begins another.
        rows = [line for line in connection.iterdump() if not line.startswith('INSERT INTO "epoch"')]
    blocks = {path.name: path.read_bytes() for path in (data / "blocks").glob("??/*")}
    return {"rows": rows, "blocks": blocks, "secrets": (data / "secrets").read_bytes()}


def killed_everywhere(attempt: Callable[[int], int], check: Callable[[int], None]) -> None:
    """Let `attempt` be killed at each of its steps until it comes to its end, and `check` after each."""
    for step in count():
        assert step < STEPS_MAX
        status = attempt(step)
        check(status)
        if status == 0:
            assert step > STEPS_MIN
            return
        assert status == KILLED


@pytest.mark.parametrize("has_earlier", [False, True], ids=["the first", "refreshed"])
def test_a_backup_that_is_killed_leaves_the_old_one_or_the_new_one(
    commands: Commands, tmp_path: Path, *, has_earlier: bool
) -> None:
    data, template, backup, new = (tmp_path / name for name in ("data", "template", "backup", "new"))
    registry(data, range(1, 2))
    states = list[dict[str, Any]]()
    if has_earlier:
        assert commands.run("backup", template, "--data-dir", data) == 0
        states.append(contents(data))
        registry(data, range(2, 3))
        assert commands.run("secrets", "rotate", "--data-dir", data) == 0
    else:
        template.mkdir()
    states.append(contents(data))
    restored = set[int]()

    def attempt(step: int) -> int:
        shutil.rmtree(backup, ignore_errors=True)
        shutil.copytree(template, backup)
        return commands.run("backup", backup, "--data-dir", data, step=step)

    def state_of_backup() -> int | None:
        shutil.rmtree(new, ignore_errors=True)
        if commands.run("restore", backup, "--no-rotate", "--data-dir", new) != 0:
            assert not new.exists()
            return None
        return states.index(contents(new))

    def check(status: int) -> None:
        found = state_of_backup()
        assert (found is None) <= (not has_earlier), "a backup was there before"
        if found is not None:
            restored.add(found)
        assert status == KILLED or found == len(states) - 1
        assert commands.run("backup", backup, "--data-dir", data) == 0
        assert state_of_backup() == len(states) - 1
        assert len([path for path in backup.iterdir() if path.name.startswith(("snapshot-", "."))]) == 1

    killed_everywhere(attempt, check)
    assert restored == set(range(len(states)))


@pytest.mark.parametrize("flag", ["--rotate", "--no-rotate"])
def test_a_restore_that_is_killed_leaves_nothing_that_could_be_served(
    commands: Commands, tmp_path: Path, flag: str
) -> None:
    data, backup, new = (tmp_path / name for name in ("data", "backup", "new"))
    registry(data, range(1, 2))
    for _ in range(2):
        assert commands.run("secrets", "rotate", "--data-dir", data) == 0
    assert commands.run("backup", backup, "--data-dir", data) == 0
    wanted = contents(data)
    marked = 0

    def attempt(step: int) -> int:
        shutil.rmtree(new, ignore_errors=True)
        return commands.run("restore", backup, flag, "--data-dir", new, step=step)

    def check(status: int) -> None:
        nonlocal marked
        place = new / "muniment.db"
        if place.exists() and place.read_bytes() == PLACEHOLDER:
            marked += 1
            with (
                pytest.raises(sqlite3.DatabaseError, match="not a database"),
                closing(sqlite3.connect(place)) as opened,
            ):
                opened.execute("SELECT 1 FROM sqlite_master")
        if not place.exists() or place.read_bytes() == PLACEHOLDER:
            assert status == KILLED
            assert commands.run("restore", backup, flag, "--data-dir", new) == 0
        else:
            assert commands.run("restore", backup, flag, "--data-dir", new) == 1, "a registry is there"
        assert {path.name for path in new.iterdir()} == {"muniment.db", "secrets", "blocks"}
        found = contents(new)
        assert (found["rows"], found["blocks"]) == (wanted["rows"], wanted["blocks"])
        if flag == "--no-rotate":
            assert found["secrets"] == wanted["secrets"]
        else:
            (secret,) = found["secrets"].splitlines()
            assert secret not in wanted["secrets"]

    killed_everywhere(attempt, check)
    assert marked > STEPS_MIN / 2
