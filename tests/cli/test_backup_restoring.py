"""`muniment restore` at a terminal, and the remains of an interrupted one."""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path

import pytest

import warm
from backing_up import backup, data, done, ids, refused, run
from muniment.operate.restore import PLACEHOLDER
from muniment.service.running.directory_lock import LOCK_FILE
from terminal import shown_on

__all__ = ["backup", "data"]  # the fixtures


def at_a_terminal(*words: str | Path, data: Path, types: bytes = b"") -> tuple[int, str, str]:
    """The exit status, what stands on standard output, and what the terminal shows."""
    terminal, other_end = os.openpty()
    environment = os.environ | {"PYTHONPATH": str(warm.UNHURRIED)}
    process = warm.popen([*map(str, words), "--data-dir", str(data)], environment, stdin=other_end, stderr=other_end)
    os.close(other_end)
    os.write(terminal, types)
    shown = shown_on(terminal).decode()
    told, _ = process.communicate()
    return process.wait(), told, shown


@pytest.mark.parametrize(("answer", "rotated"), [(b"\n", True), (b"y\n", True), (b"n\n", False)])
def test_a_terminal_is_asked_whether_to_rotate(
    data: Path, backup: Path, tmp_path: Path, answer: bytes, *, rotated: bool
) -> None:
    status, told, shown = at_a_terminal("restore", backup, "--json", data=tmp_path / "new", types=answer)
    assert status == 0, shown
    assert "Revoke all earlier API keys, tokens and nonces?" in shown
    assert "[Y/n]" in shown
    assert json.loads(told)["rotated"] is rotated
    assert (ids(tmp_path / "new") == ids(data)) is not rotated


def test_without_an_answer_to_the_question_nothing_is_restored(backup: Path, tmp_path: Path) -> None:
    status, told, shown = at_a_terminal("restore", backup, data=tmp_path / "new", types=b"\x04")
    assert (status, told) == (1, "")
    assert "Aborted!" in shown
    assert not (tmp_path / "new").exists()


def test_a_terminal_that_has_said_so_is_not_asked(backup: Path, tmp_path: Path) -> None:
    status, _, shown = at_a_terminal("restore", backup, "--rotate", data=tmp_path / "new")
    assert status == 0
    assert "Revoke all" not in shown


def test_a_terminal_is_not_asked_about_secrets_that_are_elsewhere(data: Path, tmp_path: Path) -> None:
    (data / "secrets").unlink()
    done("backup", tmp_path / "backup", data=data)
    status, told, shown = at_a_terminal("restore", tmp_path / "backup", data=tmp_path / "new")
    assert (status, "Revoke all" in shown) == (0, False)
    assert "MUNIMENT_SECRET to the old ones, or to one new secret" in told


def test_a_terminal_is_shown_bars(data: Path, tmp_path: Path) -> None:
    status, told, shown = at_a_terminal("backup", tmp_path / "backup", "--json", data=data)
    assert status == 0, shown
    assert json.loads(told)["triggers"] == 3
    for label in ("database", "functions"):
        assert f"{label}  [####################################]  100%" in shown
    _, _, shown = at_a_terminal("restore", tmp_path / "backup", "--rotate", data=tmp_path / "new")
    for label in ("checking", "copying"):
        assert f"{label}  [####################################]  100%" in shown


def test_where_a_restore_is_not_finished_nothing_is_served(backup: Path, tmp_path: Path) -> None:
    new = tmp_path / "new"
    new.mkdir()
    (new / "muniment.db").write_bytes(PLACEHOLDER)
    for words in ("serve --port 0", "verify", "migrate", "users set-email 0x0000000000000000000000000000000000000001"):
        done = warm.run(*words.split(), data=new)
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr == "Error: cannot open the database: file is not a database\n"
    (new / LOCK_FILE).unlink()  # which `serve` has, and leaves
    assert [(path.name, path.read_bytes()) for path in new.iterdir()] == [("muniment.db", PLACEHOLDER)]
    assert run("restore", backup, "--rotate", data=new).exit_code == 0
    assert run("verify", data=new).exit_code == 0


def test_only_one_restore_runs_at_a_time(backup: Path, tmp_path: Path) -> None:
    new = tmp_path / "new"
    new.mkdir()
    (new / "muniment.db").write_bytes(PLACEHOLDER)
    with (new / "muniment.db").open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert "another restore is using" in refused("restore", backup, "--rotate", data=new)
    assert {path.name for path in new.iterdir()} == {"muniment.db"}


def test_a_registry_that_is_made_meanwhile_is_left_alone(
    backup: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = tmp_path / "new"
    link = os.link

    def late(source: Path, target: Path) -> None:
        assert run("migrate", data=new).exit_code == 0
        link(source, target)

    monkeypatch.setattr(os, "link", late)
    assert "another command made a registry there" in refused("restore", backup, "--rotate", data=new)
    monkeypatch.undo()
    assert {path.name for path in new.iterdir()} == {"muniment.db"}
    assert run("migrate", data=new).output == "the database is up to date\n"
