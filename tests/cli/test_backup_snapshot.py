"""The copy of a database: a snapshot, however much is written meanwhile, and writers are never blocked."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from muniment.protocol.errors import DatabaseUnavailable, Integrity
from muniment.service.storage.sqlite.connection import connect
from muniment.service.storage.sqlite.snapshot import StillDatabase, take_snapshot

ROWS = 400


@pytest.fixture
def source(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    """A writer of a database of a page a row, which never waits."""
    with closing(connect(tmp_path / "source.db")) as connection:
        connection.execute("PRAGMA busy_timeout=0")
        connection.execute("CREATE TABLE rows (seq INTEGER PRIMARY KEY, text TEXT NOT NULL) STRICT")
        for _ in range(ROWS):
            connection.execute("INSERT INTO rows (text) VALUES (?)", ("x" * 4_000,))
        yield connection


def test_a_copy_is_of_the_moment_it_began_however_much_is_written_meanwhile(
    source: sqlite3.Connection, tmp_path: Path
) -> None:
    seen: list[tuple[int, int]] = []

    def advance(done: int, pages: int) -> None:
        seen.append((done, pages))
        source.execute("INSERT INTO rows (text) VALUES ('meanwhile')")
        source.execute("UPDATE rows SET text = 'changed' WHERE seq = ?", (len(seen),))
        source.execute("PRAGMA wal_checkpoint")
        assert len(seen) < ROWS, "it begins again and again"

    take_snapshot(tmp_path / "source.db", tmp_path / "copy.db", advance, pages_per_step=10)
    pages = seen[0][1]
    assert pages > ROWS
    assert seen == [(min(done, pages), pages) for done in range(10, pages + 10, 10)]
    with StillDatabase(tmp_path / "copy.db") as copy:
        assert list(copy.fetch("PRAGMA integrity_check")) == [("ok",)]
        assert list(copy.fetch("SELECT DISTINCT text FROM rows")) == [("x" * 4_000,)]
        assert list(copy.fetch("SELECT count(*) FROM rows")) == [(ROWS,)]


def test_rows_that_only_the_log_has_are_copied_too(source: sqlite3.Connection, tmp_path: Path) -> None:
    source.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    source.execute("INSERT INTO rows (text) VALUES ('last')")
    take_snapshot(tmp_path / "source.db", tmp_path / "copy.db", lambda *_: None)
    with StillDatabase(tmp_path / "copy.db") as copy:
        assert list(copy.fetch("SELECT text FROM rows ORDER BY seq DESC LIMIT 1")) == [("last",)]


def test_rows_that_are_not_committed_are_not_copied(source: sqlite3.Connection, tmp_path: Path) -> None:
    source.execute("BEGIN IMMEDIATE")
    source.execute("INSERT INTO rows (text) VALUES ('never')")
    take_snapshot(tmp_path / "source.db", tmp_path / "copy.db", lambda *_: None)
    source.execute("ROLLBACK")
    with StillDatabase(tmp_path / "copy.db") as copy:
        assert list(copy.fetch("SELECT count(*) FROM rows")) == [(ROWS,)]


def test_reading_a_copy_leaves_nothing_beside_it(source: sqlite3.Connection, tmp_path: Path) -> None:
    source.execute("PRAGMA wal_checkpoint")
    (tmp_path / "copies").mkdir()
    path = tmp_path / "copies" / "with ? and # and %20.db"
    take_snapshot(tmp_path / "source.db", path, lambda *_: None)
    before = path.read_bytes()
    assert path.stat().st_mode & 0o777 == 0o600
    with StillDatabase(path) as copy:
        assert list(copy.fetch("SELECT count(*) FROM rows")) == [(ROWS,)]
        assert [each.name for each in path.parent.iterdir()] == [path.name]
        with pytest.raises(Integrity, match="no such table"):
            list(copy.fetch("SELECT * FROM other"))
    assert path.read_bytes() == before


def test_a_copy_takes_the_place_of_nothing(source: sqlite3.Connection, tmp_path: Path) -> None:
    del source
    (tmp_path / "copy.db").write_text("dear")
    with pytest.raises(FileExistsError):
        take_snapshot(tmp_path / "source.db", tmp_path / "copy.db", lambda *_: None)
    assert (tmp_path / "copy.db").read_text() == "dear"


def test_a_full_disk_is_a_refusal(source: sqlite3.Connection, tmp_path: Path) -> None:
    del source

    def full(*_: int) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    with pytest.raises(DatabaseUnavailable, match="cannot be copied: database or disk is full"):
        take_snapshot(tmp_path / "source.db", tmp_path / "copy.db", full)
