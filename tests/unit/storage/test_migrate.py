"""Numbered migrations: each once, under a lock, by whichever process is first."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from words import write_lock_held

from muniment.protocol.errors import AnotherRevision, DatabaseUnavailable, NotReady
from muniment.service.storage import migrate
from muniment.service.storage.migrate import Migration, migrations, missing
from muniment.service.storage.sqlite import migrate as sqlite_migrate
from muniment.service.storage.sqlite.engine import SqliteDatabase

KNOWN = migrations("sqlite")
NAMES = [migration.name for migration in KNOWN]
_MIGRATE = """
import asyncio, sys
from pathlib import Path
from muniment.service.storage.sqlite.engine import SqliteDatabase
database = SqliteDatabase(Path(sys.argv[1]))
print("open", flush=True)
sys.stdin.readline()
print(asyncio.run(database.migrate()), flush=True)
asyncio.run(database.close())
"""


async def tables(database: SqliteDatabase) -> set[str]:
    return {name for (name,) in await database.fetch("SELECT name FROM sqlite_master WHERE type = 'table'")}


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[SqliteDatabase]:
    made = SqliteDatabase(tmp_path / "test.db")
    yield made
    await made.close()


def use_migrations(monkeypatch: pytest.MonkeyPatch, known: list[Migration]) -> None:
    for module in (migrate, sqlite_migrate):
        monkeypatch.setattr(module, "migrations", lambda _: known)


async def test_migrations_are_applied_once(database: SqliteDatabase) -> None:
    assert await database.migrate() == NAMES
    assert await database.migrate() == []
    rows = await database.fetch("SELECT name, sha256 FROM schema_migrations ORDER BY name")
    assert rows == [(each.name, each.sha256) for each in KNOWN]


async def test_a_database_without_migrations_is_not_ready(database: SqliteDatabase) -> None:
    with pytest.raises(NotReady, match=NAMES[0]):
        await database.check()
    await database.migrate()
    await database.check()


async def test_a_database_without_the_newest_migration_is_not_ready(
    database: SqliteDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    await database.migrate()
    newer = Migration("9998_newer.sql", "CREATE TABLE newer (a INTEGER) STRICT;")
    use_migrations(monkeypatch, [*KNOWN, newer])
    with pytest.raises(NotReady, match="9998_newer"):
        await database.check()
    assert await database.migrate() == ["9998_newer.sql"]
    await database.check()


async def test_migrations_of_a_newer_release_are_left_alone(
    database: SqliteDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    newer = Migration("9998_newer.sql", "CREATE TABLE newer (a INTEGER) STRICT;")
    with monkeypatch.context() as patch:
        use_migrations(patch, [*KNOWN, newer])
        await database.migrate()
    assert await database.migrate() == []
    await database.check()
    assert "newer" in await tables(database)


async def test_a_migration_that_has_changed_is_refused(
    database: SqliteDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    await database.migrate()
    before = await tables(database)
    changed = Migration(KNOWN[0].name, KNOWN[0].sql + "CREATE TABLE more (a INTEGER) STRICT;")
    use_migrations(monkeypatch, [changed])
    with pytest.raises(
        AnotherRevision, match=r"0001_initial\.sql differs.*nothing was changed.*intents stay with the old registry"
    ):
        await database.migrate()
    with pytest.raises(NotReady, match=r"0001_initial\.sql differs"):
        await database.check()
    assert await tables(database) == before


async def test_a_migration_that_fails_leaves_nothing(database: SqliteDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    good = Migration("9997_good.sql", "CREATE TABLE good (a INTEGER) STRICT;")
    bad = Migration("9998_bad.sql", "CREATE TABLE bad (a INTEGER) STRICT;\nCREATE TABLE bad (a INTEGER) STRICT;")
    use_migrations(monkeypatch, [good, bad])
    with pytest.raises(DatabaseUnavailable, match="already exists"):
        await database.migrate()
    assert await tables(database) == set()
    use_migrations(monkeypatch, KNOWN)
    assert await database.migrate() == NAMES


_COMMENTED = """
-- first
CREATE TABLE a (x INTEGER) STRICT; -- one; two
CREATE TABLE
  b (x TEXT DEFAULT ';') STRICT;
-- end
"""
_WITH_A_TRIGGER = """
CREATE TABLE a (x INTEGER) STRICT;
CREATE TABLE b (x INTEGER) STRICT;
CREATE TRIGGER t AFTER INSERT ON a BEGIN
  INSERT INTO b VALUES (1);
  INSERT INTO b VALUES (2);
END;
"""
_UNENDED = """
CREATE TABLE a (x INTEGER) STRICT;
CREATE TABLE b (x INTEGER) STRICT
"""


@pytest.mark.parametrize(
    "script", [_COMMENTED, _WITH_A_TRIGGER, _UNENDED], ids=["comments and strings", "a trigger", "no last semicolon"]
)
async def test_every_statement_of_a_script_runs(
    database: SqliteDatabase, monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    use_migrations(monkeypatch, [Migration("0001_x.sql", script)])
    await database.migrate()
    assert {"a", "b"} < await tables(database)


@pytest.mark.long
def test_of_two_processes_one_migrates_and_the_other_waits(tmp_path: Path) -> None:
    path = tmp_path / "test.db"
    command = [sys.executable, "-c", _MIGRATE, str(path)]
    pipes = subprocess.PIPE
    both = [subprocess.Popen(command, stdin=pipes, stdout=pipes, text=True) for _ in range(2)]
    for process in both:
        assert process.stdout is not None
        assert process.stdout.readline() == "open\n"
    with write_lock_held(path):
        for process in both:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        time.sleep(0.3)
        assert [process.poll() for process in both] == [None, None]
    said = sorted(process.communicate(timeout=60)[0].strip() for process in both)
    assert [process.returncode for process in both] == [0, 0]
    assert said == sorted([str(NAMES), "[]"])


def test_the_missing_come_in_their_order() -> None:
    first, second = Migration("0001_a.sql", "a"), Migration("0002_b.sql", "b")
    assert missing([first, second], {}) == [first, second]
    assert missing([first, second], {"0001_a.sql": first.sha256}) == [second]


def test_files_are_numbered_without_gaps() -> None:
    assert [name[:4] for name in NAMES] == [f"{number:04}" for number in range(1, len(NAMES) + 1)]
