"""`muniment doctor`: a healthy registry has no fault, and each damage is named."""

from __future__ import annotations

import json
import os
import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest
from click.testing import CliRunner

from backing_up import fill_by_copy
from breaking import breaks
from builders import Bundle, TriggerDraft, deploy, register
from muniment.cli.main import main
from muniment.operate.doctor.examination import CHECKS, Check, examine
from muniment.operate.doctor.findings import Examined, Finding
from muniment.service.auth.secrets import RingFile
from muniment.service.running.settings import Settings
from warm_sandbox import warm_sandbox

__all__ = ["warm_sandbox"]  # the fixture
pytestmark = pytest.mark.usefixtures("warm_sandbox")


async def with_a_trigger(client: httpx2.AsyncClient) -> None:
    await register(client, TriggerDraft(await deploy(client, Bundle())))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A registry with a function and a trigger."""
    fill_by_copy(tmp_path / "data", with_a_trigger)
    (tmp_path / "data").chmod(0o700)
    (tmp_path / "data" / "last-backup").touch()
    return tmp_path / "data"


def examined(data: Path, *options: str) -> dict[str, dict[str, Any]]:
    """The findings by the name of their check. The exit status is that of the worst."""
    result = CliRunner().invoke(main, ["doctor", "--json", "--data-dir", str(data), *options])
    answer = json.loads(result.stdout)
    assert answer["status"] == result.exit_code
    worst = max(["ok", "warn", "fail"].index(found["level"]) for found in answer["findings"])
    assert worst == result.exit_code
    return {found["check"]: found for found in answer["findings"]}


def sql(data: Path, statement: str) -> None:
    with closing(sqlite3.connect(data / "muniment.db")) as connection, connection:
        assert connection.execute(statement).rowcount == 1


def test_a_healthy_registry_has_no_fault(data: Path) -> None:
    found = examined(data)
    # The disk and the load of the machine of the test are what they are.
    machine = {"disk", "inodes", "fsync", "file system", "descriptors"}
    assert {
        name: each["message"] for name, each in found.items() if each["level"] != "ok" and name not in machine
    } == {}
    assert found["blocks"]["message"] == "the newest 3 match their hashes"
    assert found["signature"]["message"] == "the newest trigger is signed by its owner"
    assert machine <= found.keys()


def test_the_text_has_a_line_for_each_check_and_a_remedy_below_a_fault(data: Path) -> None:
    (data / "secrets").chmod(0o644)
    result = CliRunner().invoke(main, ["doctor", "--data-dir", str(data)])
    assert result.exit_code == 2
    lines = result.stdout.splitlines()
    at = lines.index(f"fail  secrets: other users can read {data}/secrets")
    assert lines[at + 1].startswith(f"      chmod 600 {data}/secrets")
    assert "ok    database: it answers and has every migration" in lines


@breaks("blocks")
def test_a_damaged_block_fails(data: Path) -> None:
    block = max((path for path in (data / "blocks").rglob("*") if path.is_file()), key=lambda path: path.stat().st_size)
    block.chmod(0o600)
    block.write_bytes(b"damaged")
    found = examined(data)["blocks"]
    assert (found["level"], "muniment verify" in found["remedy"]) == ("fail", True)


def test_blocks_that_are_not_mounted_fail_and_are_not_made(data: Path) -> None:
    (data / "blocks").rename(data / "elsewhere")
    assert examined(data)["blocks"]["level"] == "fail"
    assert not (data / "blocks").exists()


def test_a_damaged_row_of_blocks_fails_and_no_directory_is_made(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copied = CliRunner().invoke(main, ["blocks", "copy", "file:", "database:", "--data-dir", str(data)])
    assert copied.exit_code == 0, copied.output
    (data / "spools").rmdir()
    monkeypatch.setenv("MUNIMENT_BLOCKS_URL", "database:")
    assert examined(data)["blocks"]["message"] == "the newest 3 match their hashes"
    sql(data, "UPDATE blocks SET data = x'00' WHERE digest = (SELECT digest FROM functions)")
    assert examined(data)["blocks"]["level"] == "fail"
    assert not (data / "spools").exists()


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("s4://blocks/x", "blocks are kept in file:"),
        ("S3://blocks/x", "blocks are kept in file:"),
        ("postgresql://u:hidden@h/x", "blocks are kept in file:"),
        ("file://host/x", "a file: URL of blocks has an absolute path"),
        ("s3://UPPER/x", "the blocks of an S3 bucket have a URL like"),
    ],
)
def test_a_place_of_blocks_with_which_the_service_does_not_start_fails(
    data: Path, monkeypatch: pytest.MonkeyPatch, url: str, message: str
) -> None:
    sql(data, "DELETE FROM functions")
    monkeypatch.setenv("MUNIMENT_BLOCKS_URL", url)
    found = examined(data)
    assert (found["blocks"]["level"], found["blocks"]["message"].startswith(message)) == ("fail", True)
    assert "hidden" not in str(found)
    assert "backup" in found


def test_a_bucket_that_does_not_answer_fails_before_the_first_upload(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sql(data, "DELETE FROM functions")
    monkeypatch.setenv("MUNIMENT_BLOCKS_URL", "s3://blocks/x")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")  # nothing listens at discard
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION"):
        monkeypatch.setenv(name, "us-east-1")
    found = examined(data)["blocks"]
    assert (found["level"], found["message"].startswith("the block store does not answer: ")) == ("fail", True)


def test_a_database_of_an_unknown_engine_is_one_finding(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MUNIMENT_DATABASE_URL", "mysql://u:hidden@h/x")
    found = examined(data)
    assert found["database"]["message"].startswith("no database engine for 'mysql' URLs")
    assert {"disk", "backup"} <= found.keys()


@breaks("signature")
def test_a_trigger_that_was_changed_fails(data: Path) -> None:
    sql(data, 'UPDATE triggers SET record = replace(record, \'"version":"\', \'"version":"9\')')
    found = examined(data)["signature"]
    assert found["level"] == "fail"
    assert found["message"].startswith("trigger 0x")


@breaks("database")
def test_a_missing_migration_fails(data: Path) -> None:
    sql(data, "DELETE FROM schema_migrations WHERE name LIKE '0001%'")
    found = examined(data)["database"]
    assert (found["level"], found["remedy"]) == ("fail", "muniment migrate")


def test_a_file_that_is_no_database_fails(data: Path) -> None:
    for path in data.glob("muniment.db*"):
        path.unlink()
    (data / "muniment.db").write_bytes(b"no database" * 1_000)
    assert examined(data)["database"]["level"] == "fail"


def test_it_changes_no_record_and_makes_no_file(data: Path) -> None:
    def state() -> tuple[list[str], str, tuple[bytes, ...]]:
        with closing(sqlite3.connect(data / "muniment.db")) as connection:
            rows = "\n".join(connection.iterdump())
        return sorted(str(path) for path in data.rglob("*")), rows, RingFile(data)()

    before = state()
    examined(data, "--backup", str(data / "none"))
    assert state() == before


def test_a_check_that_hangs_is_named_and_what_was_found_until_then_is_kept(data: Path) -> None:
    (data / "secrets").unlink()
    os.mkfifo(data / "secrets")  # the check of the secrets waits for a writer
    others = {"libraries", "database", "signature", "blocks"}
    for seconds in (2, 10, 60):  # a busy machine needs more of them for the other checks
        findings, is_over = examine(Examined(Settings(data_dir=data)), seconds_max=seconds)
        with suppress(OSError):  # on a busy machine the check of the secrets has not begun
            os.close(os.open(data / "secrets", os.O_WRONLY | os.O_NONBLOCK))  # ends the thread of the check
        assert not is_over
        found = {each.check: each for each in findings}
        if "secrets" not in found and seconds < 60:
            continue
        assert found["secrets"].message.startswith(
            f"the check did not end within {seconds} s, and these checks did not run: data directory, disk, "
        )
        assert "fsync" not in found
        if others <= found.keys():
            return
    assert others <= found.keys()


def test_a_mistake_in_a_check_is_a_finding_and_the_others_go_on(data: Path) -> None:
    def broken(_: Examined) -> Finding:
        raise ZeroDivisionError

    row = Check("machine", "broken", lambda _: True, broken)
    findings, is_over = examine(Examined(Settings(data_dir=data)), checks=(row, *CHECKS))
    found = {each.check: each for each in findings}
    assert (found["broken"].message, is_over) == ("the check ended with ZeroDivisionError", True)
    assert {"libraries", "blocks"} <= found.keys()


def test_the_json_has_the_documented_form(data: Path) -> None:
    result = CliRunner().invoke(main, ["doctor", "--json", "--data-dir", str(data)])
    answer = json.loads(result.stdout)
    assert list(answer) == ["status", "findings"]
    for found in answer["findings"]:
        assert list(found) == ["check", "level", "message", "remedy"]
        assert found["level"] in {"ok", "warn", "fail"}
        assert bool(found["remedy"]) == (found["level"] != "ok")
        assert "\n" not in found["message"] + found["remedy"]
