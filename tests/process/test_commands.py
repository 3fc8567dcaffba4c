"""The commands, each as a process."""

from __future__ import annotations

import json
import re
import socket
import subprocess
from importlib.metadata import version
from pathlib import Path

import httpx2
import pytest

import warm
from answers import ok
from muniment.service.storage.migrate import migrations
from service import Service

SECONDS_MAX = 60


def muniment(*words: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return warm.run(*words, timeout=SECONDS_MAX, environment=environment)


def assert_told_in_one_line(ended: subprocess.CompletedProcess[str], reason: str) -> None:
    assert ended.returncode == 1, ended
    (line,) = ended.stderr.splitlines()
    assert line.startswith("Error: ")
    assert re.search(reason, line), line


def test_the_version_is_that_of_the_package() -> None:
    assert muniment("--version").stdout.strip() == f"muniment {version('muniment')}"


@pytest.mark.parametrize(
    "words",
    [
        [], ["serve"], ["demo"], ["migrate"], ["config"], ["verify"], ["doctor"], ["ping"],
        ["secrets"], ["secrets", "list"], ["secrets", "rotate"], ["secrets", "retire"],
    ],
    ids=lambda words: " ".join(words) or "muniment",
)  # fmt: skip
def test_every_command_has_help(words: list[str]) -> None:
    helped = muniment(*words, "--help")
    assert helped.returncode == 0
    assert helped.stdout.startswith("Usage: ")
    assert helped.stderr == ""
    assert helped.stdout.splitlines()[2].strip()  # what it does, in a sentence


def test_migrate_prints_what_it_did(tmp_path: Path) -> None:
    told = "".join(f"applied {migration.name}\n" for migration in migrations("sqlite"))
    assert muniment("migrate", "--data-dir", tmp_path / "data").stdout == told
    assert muniment("migrate", "--data-dir", tmp_path / "data").stdout == "the database is up to date\n"


@pytest.mark.parametrize("words", ["serve", "migrate"])
def test_a_data_directory_that_cannot_be_written_is_reported_in_one_line(tmp_path: Path, words: str) -> None:
    (tmp_path / "file").touch()
    assert_told_in_one_line(muniment(words, "--data-dir", tmp_path / "file" / "data"), "Not a directory")


def test_blocks_that_cannot_be_written_are_reported_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "blocks").touch()
    ended = muniment("serve", "--data-dir", tmp_path, "--port", "0")
    assert_told_in_one_line(ended, "the block store does not answer")
    assert ended.stdout == ""


def test_an_invalid_secret_is_reported_in_one_line_and_not_repeated(tmp_path: Path) -> None:
    ended = muniment("serve", "--data-dir", tmp_path, "--port", "0", MUNIMENT_SECRET="hunter2")
    assert_told_in_one_line(ended, "64 hex digits")
    assert ended.stdout == ""
    assert "hunter2" not in ended.stderr


def test_a_file_that_is_not_a_database_is_reported_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "muniment.db").write_bytes(b"something else" * 1000)
    assert_told_in_one_line(muniment("serve", "--data-dir", tmp_path), "file is not a database")


@pytest.mark.allow_hosts(["127.0.0.1", "::", "::1"])
@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
def test_every_address_is_one_of_ipv4_too(tmp_path: Path) -> None:
    with Service(tmp_path / "data", host="::") as service:
        port = service.url.rpartition(":")[2]
        assert service.said.startswith(f"Muniment listens on http://[::]:{port} and http://0.0.0.0:{port} (data in ")
        for host in ("127.0.0.1", "[::1]"):
            assert ok(httpx2.get(f"http://{host}:{port}/functions")).json() == []
            ok(httpx2.get(f"http://{host}:{port}/metrics"))  # for the machine itself


@pytest.mark.parametrize("listens", [True, False], ids=["served", "only taken"])
def test_a_port_in_use_is_reported_in_one_line(tmp_path: Path, *, listens: bool) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        if listens:
            taken.listen()
        port = taken.getsockname()[1]
        ended = muniment("serve", "--data-dir", tmp_path, "--port", str(port))
    assert_told_in_one_line(
        ended, f"cannot listen on 127.0.0.1 port {port}: Address already in use; give another one with --port$"
    )
    assert ended.stdout == ""


def assert_walked(said: str) -> None:
    steps = [line.split("  ")[1] for line in said.splitlines() if line.startswith("  ")]
    assert steps[:4] == ["wallet", "login", "API key", "deploy"]
    assert steps[4:10] == ["preview", "signature", "trigger", "list", "deactivate", "list"]


def test_demo_walks_through_a_running_service(service: Service) -> None:
    for number in (1, 2):
        walked = muniment("demo", "--url", service.url)
        assert walked.returncode == 0, walked
        assert_walked(walked.stdout)
        assert len(ok(httpx2.get(f"{service.url}/triggers?active=false")).json()) == number
        assert len(ok(httpx2.get(f"{service.url}/functions")).json()) == 1


def test_demo_without_a_service_is_reported_in_one_line() -> None:
    ended = muniment("demo", "--url", "http://127.0.0.1:9")
    assert ended.returncode == 4
    (line,) = ended.stderr.splitlines()
    assert "does not answer" in line


def test_demo_says_why_its_service_did_not_start(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    ended = muniment("demo", "--data-dir", tmp_path / "file" / "data", "--port", "0")
    assert ended.returncode == 1
    assert "Not a directory" in ended.stderr
    assert "Traceback" not in ended.stderr


LOGGING = {"MUNIMENT_LOG_FORMAT": "json", "MUNIMENT_LOG_LEVEL": "info", "MUNIMENT_LOG_REQUESTS": "all"}


def test_the_process_logs_as_the_settings_say(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with Service(tmp_path / "data", environment=LOGGING) as service:
        ok(httpx2.get(f"{service.url}/functions", headers={"x-request-id": "mine"}))
    lines = [json.loads(line) for line in capfd.readouterr().err.splitlines()]
    assert [line["path"] for line in lines if line.get("request_id") == "mine"] == ["/functions"]
