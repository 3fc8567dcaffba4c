"""`muniment restore`: only a whole backup is restored, and never over a registry."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from backing_up import (
    at_first,
    backup,
    blocks,
    copy_files,
    corrupt_index,
    data,
    describe,
    done,
    fill_by_copy,
    refused,
    run,
    sha256,
    snapshot,
    tree,
)
from muniment.service.auth.secrets import RingFile

__all__ = ["backup", "data"]  # the fixtures


def change(path: Path, how: Callable[[bytes], bytes]) -> None:
    path.write_bytes(how(path.read_bytes()))


def with_other_database(backup: Path, damage: Callable[[Path], Any]) -> None:
    """Put another database in, and describe it as the right one."""
    path = snapshot(backup) / "muniment.db"
    damage(path)
    describe(backup, sha256=sha256(path))


def sql(statement: str) -> Callable[[Path], None]:
    def executed(path: Path) -> None:
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("PRAGMA journal_mode=DELETE")
            connection.execute(statement)
            connection.commit()

    return executed


DAMAGES: dict[str, tuple[Callable[[Path], Any], str]] = {
    "no description": (lambda backup: (backup / "backup.json").unlink(), "has no complete backup"),
    "no JSON": (lambda backup: change(backup / "backup.json", lambda text: text[:-9]), "backup.json is damaged"),
    "a list": (lambda backup: (backup / "backup.json").write_text("[]"), "backup.json is damaged"),
    "newer": (lambda backup: describe(backup, format=2), "newer release, in format 2"),
    "another place": (lambda backup: describe(backup, snapshot="../data"), "backup.json is damaged"),
    "no database": (lambda backup: (snapshot(backup) / "muniment.db").unlink(), "No such file"),
    "one bit": (
        lambda backup: change(snapshot(backup) / "muniment.db", lambda data: data[:-1] + bytes([data[-1] ^ 1])),
        "its SHA-256 differs",
    ),
    "cut short": (lambda backup: change(snapshot(backup) / "muniment.db", lambda data: data[:-1]), "SHA-256 differs"),
    "damaged before": (lambda backup: with_other_database(backup, corrupt_index), "the database is damaged: "),
    "something else": (
        lambda backup: with_other_database(backup, lambda path: path.write_text("something else" * 99)),
        "the database is damaged: file is not a database",
    ),
    "another database": (
        lambda backup: with_other_database(backup, sql("DROP TABLE schema_migrations")),
        "not one of this service",
    ),
    "of a newer release": (
        lambda backup: with_other_database(backup, sql("INSERT INTO schema_migrations VALUES ('9999_new.sql', '', 0)")),
        "has migration 9999_new.sql, which this older release lacks",
    ),
    "of another release": (
        lambda backup: with_other_database(backup, sql("UPDATE schema_migrations SET sha256 = 'x'")),
        "another revision of muniment made this database",
    ),
    "a block is missing": (lambda backup: blocks(backup)[1].unlink(), "1 of 1 functions have missing"),
    "a block is damaged": (lambda backup: blocks(backup)[2].write_bytes(b"x"), "1 of 1 functions have missing"),
    "all blocks are missing": (lambda backup: shutil.rmtree(backup / "blocks"), "1 of 1 functions have missing"),
    "no secrets": (lambda backup: (snapshot(backup) / "secrets").unlink(), "differs from the ring of secrets"),
    "half a secret": (
        lambda backup: change(snapshot(backup) / "secrets", lambda text: text[:40]),
        "cannot be read as a ring of secrets",
    ),
    "a secret less": (
        lambda backup: change(snapshot(backup) / "secrets", lambda text: text[:65]),
        "differs from the ring of secrets",
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def with_two_secrets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A backup with a ring of two secrets."""
    folder = tmp_path_factory.mktemp("whole")
    fill_by_copy(folder / "data", at_first)
    run("secrets", "rotate", data=folder / "data")
    done("backup", folder / "backup", data=folder / "data")
    return folder / "backup"


@pytest.mark.parametrize("name", DAMAGES)
def test_a_backup_that_is_not_whole_is_not_restored(with_two_secrets: Path, tmp_path: Path, name: str) -> None:
    damage, reason = DAMAGES[name]
    backup, new = tmp_path / "backup", tmp_path / "new"
    copy_files(with_two_secrets, backup)
    ring = [raw.hex() for raw in RingFile(snapshot(backup))()]
    assert len(ring) == 2
    damage(backup)
    before = tree(tmp_path)
    for flag in ("--rotate", "--no-rotate"):
        said = refused("restore", backup, flag, data=new)
        assert reason in said, f"{flag}: {said}"
        assert [raw for raw in ring if raw[:40] in said] == [], flag
        assert tree(tmp_path) == before, flag
        assert not new.exists(), flag


def test_a_directory_that_is_not_a_backup_is_not_restored(tmp_path: Path) -> None:
    assert "no complete backup" in refused("restore", tmp_path / "backup", "--rotate", data=tmp_path / "new")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "name", ["muniment.db", "muniment.db-wal", "muniment.db-shm", "muniment.db-journal", "secrets"]
)
def test_a_registry_that_is_there_is_left_alone(backup: Path, tmp_path: Path, name: str) -> None:
    new = tmp_path / "new"
    new.mkdir()
    (new / name).write_bytes(b"")
    assert f"new/{name} exists" in refused("restore", backup, "--rotate", data=new)
    assert [(path.name, path.read_bytes()) for path in new.iterdir()] == [(name, b"")]


def test_a_whole_registry_is_left_alone(data: Path, backup: Path) -> None:
    before = tree(data)
    for flag in ("--rotate", "--no-rotate"):
        assert "holds no registry" in refused("restore", backup, flag, data=data)
    assert tree(data) == before


def test_without_a_terminal_one_of_both_must_be_said(backup: Path, tmp_path: Path) -> None:
    assert "give --rotate to revoke" in refused("restore", backup, data=tmp_path / "new")
    assert not (tmp_path / "new").exists()
