"""One service at a time serves from a data directory, on either engine."""

from __future__ import annotations

import asyncio
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

import warm
from answers import ok
from builders import signed_in
from mounts import mounted, needs_mounts
from muniment.service.running.directory_lock import LOCK_FILE, locked_directory
from service import START_SECONDS_MAX, Service


def files_in(directory: Path) -> set[str]:
    return {str(path.relative_to(directory)) for path in directory.rglob("*")}


@pytest.fixture(params=["sqlite", "postgres"])
def serving(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Service]:
    url = request.getfixturevalue("postgres_url") if request.param == "postgres" else ""
    with Service(tmp_path / "data", environment={"MUNIMENT_DATABASE_URL": url} if url else {}) as started:
        yield started


@pytest.mark.parametrize("command", ["serve", "demo"])
def test_a_second_service_is_refused_with_the_id_of_the_first_and_changes_nothing(
    serving: Service, command: str
) -> None:
    before = files_in(serving.data_dir)
    ended = warm.run(
        command, "--port", "0", data=serving.data_dir, timeout=START_SECONDS_MAX, environment=serving.environment
    )
    assert (ended.returncode, ended.stdout) == (1, "")
    (line,) = ended.stderr.splitlines()
    assert line.startswith(f"Error: {serving.data_dir} is served already, by process {serving.pid}: stop that process")
    assert "--data-dir" in line
    assert "docs/run/scaling.md" in line
    assert files_in(serving.data_dir) == before
    assert ok(httpx2.get(f"{serving.url}/functions")).json() == []


def test_a_second_service_on_one_sqlite_file_is_refused(tmp_path: Path) -> None:
    """By its path, and by another name of the file."""
    other = tmp_path / "link" / "other.db"
    other.parent.mkdir()
    with Service(tmp_path / "data") as service:
        other.symlink_to(service.data_dir / "muniment.db")
        for file in (service.data_dir / "muniment.db", other):
            ended = warm.run(
                "serve", "--port", "0", data=tmp_path / "second", timeout=START_SECONDS_MAX,
                environment={"MUNIMENT_DATABASE_URL": f"sqlite:///{file}"},
            )  # fmt: skip
            assert (ended.returncode, ended.stdout) == (1, "")
            assert f"Error: {service.data_dir} is served already, by process {service.pid}: " in ended.stderr
            assert files_in(tmp_path / "second") == {LOCK_FILE}


def test_commands_work_beside_a_service(serving: Service) -> None:
    key = serving.operator_key()
    assert httpx2.get(f"{serving.url}/intents", headers={"x-operator-key": key}).status_code == 200
    assert "up to date" in serving.run("migrate")


def test_the_lock_ends_with_a_killed_process_and_its_file_stays(serving: Service) -> None:
    _, cid = asyncio.run(signed_in(serving.url))
    serving.kill()
    assert (serving.data_dir / LOCK_FILE).is_file()
    serving.start()
    assert (serving.data_dir / LOCK_FILE).read_text().split() == [str(serving.pid)]
    assert ok(httpx2.get(f"{serving.url}/functions")).json()[0]["CID"] == cid


def test_of_two_that_start_at_the_same_time_one_serves(tmp_path: Path) -> None:
    both = [Service(tmp_path / "data") for _ in range(2)]
    try:
        for each in both:
            each.launch()
        told = [each.process.stdout.readline() for each in both if each.process and each.process.stdout]
        assert sorted("listens on" in line for line in told) == [False, True]
        refused = both["listens on" in told[0]]
        assert refused.wait() == 1
    finally:
        statuses = [each.stop() for each in both if each.process is not None]
    assert statuses == [0]


# A child that is started with every descriptor that it may have, and outlives the service.
_WITH_CHILD = """
import subprocess, sys
from muniment.service.server import run
settle = run.settle_memory
def settle_with_child():
    child = subprocess.Popen(["sleep", "600"], close_fds=False, stdout=subprocess.DEVNULL, start_new_session=True)
    print("child", child.pid, flush=True)
    settle()
run.settle_memory = settle_with_child
from muniment.__main__ import main
main()
"""


def test_a_child_of_a_killed_service_does_not_keep_the_lock(tmp_path: Path) -> None:
    service = Service(tmp_path / "data", program=["-c", _WITH_CHILD])
    service.launch()
    assert service.process is not None
    assert service.process.stdout is not None
    said = re.fullmatch(r"child ([0-9]+)\n", service.process.stdout.readline())
    assert said is not None
    try:
        service.wait_until_ready()
        service.kill()
        with Service(tmp_path / "data") as again:
            assert ok(httpx2.get(f"{again.url}/functions")).json() == []
        os.kill(int(said[1]), 0)  # it is there still
    finally:
        os.kill(int(said[1]), signal.SIGKILL)


@needs_mounts
def test_an_empty_read_only_file_system_is_the_reason_and_not_a_missing_file(tmp_path: Path) -> None:
    with mounted(tmp_path) as volume:
        volume.remount("ro")
        with pytest.raises(OSError, match="Read-only file system"), locked_directory(tmp_path):
            pass
        assert files_in(tmp_path) == set()
