"""`muniment database copy` that is refused or interrupted: TO has all rows or none, and the message says why."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import sqlite3
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import LiteralString

import asyncpg
import pytest

import warm
from applications import client_of
from builders import Bundle, deploy
from conftest import Clock
from copying_world import FACTS, Place, copy, new_database, opened, run
from muniment.protocol.errors import DatabaseUnavailable
from muniment.service.app import Application
from muniment.service.storage.postgres import connection as postgres_connection
from muniment.service.storage.postgres.admin import copying as postgres_copying
from muniment.service.storage.registry_copy import TABLES
from muniment.service.storage.sqlite import copying as sqlite_copying
from postgres import Cluster

ADDRESS = b"\xaa" * 20
USERS: list[tuple[LiteralString, tuple[bytes, int]]] = [
    ("INSERT INTO users (address, created_at_ms) VALUES (?, ?)", (number.to_bytes(20), number))
    for number in range(1, 31)
]
NOTHING = {table.name: [] for table in TABLES}
# Each engine as FROM and as TO; `test_database_copy.py` has all four ways.
both_ways = pytest.mark.parametrize(
    ("source", "target"), [("sqlite", "postgres"), ("postgres", "sqlite")], indirect=True
)


@pytest.fixture(params=["sqlite", "postgres"])
def target(request: pytest.FixtureRequest, tmp_path: Path, migrated_file: Path) -> Place:
    """An empty database that has been migrated."""
    if request.param == "postgres":
        return Place.at(request.getfixturevalue("postgres_url"), tmp_path)
    shutil.copy2(migrated_file, tmp_path / "new.db")
    return Place.at("sqlite:///new.db", tmp_path)


@pytest.fixture
def source(request: pytest.FixtureRequest, file: Place, tmp_path: Path) -> Place:
    """A database with a few rows."""
    if request.param == "sqlite":
        return file
    cluster: Cluster = request.getfixturevalue("cluster")
    url = asyncio.run(cluster.create_database(f"old-{tmp_path.name}", request.getfixturevalue("with_rows")))
    return Place.at(url, tmp_path)


@pytest.fixture(scope="module")
def with_rows(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Name of the PostgreSQL database that `source` copies."""
    folder = tmp_path_factory.mktemp("rows")
    asyncio.run(new_database(cluster, folder.name, folder)).change(*USERS, *FACTS)
    return folder.name


@pytest.fixture(scope="module")
def file_with_rows(migrated_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The database that `file` copies."""
    folder = tmp_path_factory.mktemp("rows")
    shutil.copy2(migrated_file, folder / "old.db")
    Place.at("sqlite:///old.db", folder).change(*USERS, *FACTS)
    return folder / "old.db"


@pytest.fixture
def file(file_with_rows: Path, tmp_path: Path) -> Place:
    """A file with a few rows, which can be spoiled."""
    shutil.copy2(file_with_rows, tmp_path)
    return Place.at("sqlite:///old.db", tmp_path)


def spoil(place: Place, sql: str, *values: object) -> None:
    """Change a file as no service could."""
    with closing(sqlite3.connect(place.settings.data_dir / "old.db", isolation_level=None)) as connection:
        connection.execute("PRAGMA ignore_check_constraints=ON")
        connection.execute("PRAGMA foreign_keys=OFF")
        connection.execute(sql, values)


def refused(source: Place, target: Place, *arguments: str) -> str:
    """The message of a refused copy, one line."""
    result = copy(source, target, *arguments)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("Error: ")
    assert result.stderr.count("\n") == 1
    return result.stderr.removeprefix("Error: ").rstrip()


@both_ways
def test_a_second_copy_is_refused_and_changes_nothing(source: Place, target: Place) -> None:
    assert copy(source, target).exit_code == 0
    others: list[tuple[LiteralString, tuple[object, ...]]] = [
        (sql, (b"\xff" + address[1:], at)) for sql, (address, at) in USERS
    ]
    source.change(*others)
    before = target.rows()
    assert "TO holds a registry: there are rows in users, executions" in refused(source, target)
    assert target.rows() == before
    assert copy(source, source).exit_code == 1


def test_a_single_row_of_any_kind_is_a_registry(file: Place, tmp_path: Path, migrated_file: Path) -> None:
    # Both engines are asked by the same statements; `test_a_second_copy_is_refused_and_changes_nothing` shows both.
    shutil.copy2(migrated_file, tmp_path / "new.db")
    target = Place.at("sqlite:///new.db", tmp_path)
    with closing(sqlite3.connect(tmp_path / "new.db", isolation_level=None)) as connection:
        for sql, values in FACTS[1:]:
            table = sql.split()[2]
            connection.execute(sql, values)
            before = [*connection.iterdump()]
            assert refused(file, target).startswith("TO holds a registry: there are rows in " + table), table
            assert [*connection.iterdump()] == before, table
            connection.execute(f"DELETE FROM {table}")


@pytest.mark.parametrize(
    ("sql", "values", "said"),
    [
        ("UPDATE users SET address = ? WHERE created_at_ms = 12", (b"\x01" * 19,), f"users, address 0x{'01' * 19}: "),
        ("UPDATE executions SET outcome = 'odd' WHERE chain_id = 10", (),
         f"executions, chain_id 10, block_hash 0x{'05' * 32}, transaction_hash 0x{'06' * 32}, log_index -1: "),
        ("INSERT INTO function_creators VALUES (7, ?, 99, 'secret', '1', 1)", (ADDRESS,), "function_creators"),
        ("INSERT INTO users (address, name, created_at_ms) VALUES (?, CAST(x'41ff' AS TEXT), 1)", (ADDRESS,),
         f"users, address 0x{ADDRESS.hex()}: this row of FROM has text that is not UTF-8"),
        ("INSERT INTO leases VALUES (CAST(x'ff' AS TEXT), 'somebody', 1)", (),
         r"leases, name '\\xff': this row of FROM has text"),
    ],
    ids=["length", "choice", "reference", "text", "text of a key"],
)  # fmt: skip
def test_a_bad_row_is_named_and_ends_it(
    file: Place, target: Place, sql: str, values: tuple[object, ...], said: str
) -> None:
    spoil(file, sql, *values)
    told = refused(file, target)
    assert told.startswith(said)
    assert told.endswith("; TO was rolled back")
    assert "secret" not in told
    assert target.rows() == NOTHING


def test_a_reference_that_leads_nowhere_says_where_to(file: Place, target: Place) -> None:
    spoil(file, "INSERT INTO intent_logs VALUES (4711, 1, ?, '{}')", b"\x01" * 32)
    told = refused(file, target)
    assert told.startswith("intent_logs")
    assert "4711" in told


def test_a_text_that_postgresql_cannot_hold_is_named(file: Place, postgres_url: str) -> None:
    target = Place.at(postgres_url, file.settings.data_dir)
    spoil(file, "UPDATE users SET name = ? WHERE created_at_ms = 12", "a secret\0name")
    told = refused(file, target)
    assert told.startswith(f"users, address 0x{12:040x}: TO refuses this row of FROM: invalid byte sequence")
    assert "secret" not in told
    assert target.rows() == NOTHING


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("sqlite:///nowhere.db", "FROM: there is no database at "),
        ("ftp://user:hidden@host/x", "no database engine for 'ftp' URLs"),
        ("postgresql://user:hidden@127.0.0.1:1/x", "FROM: the database cannot be reached"),
    ],
)
def test_an_invalid_place_is_reported_in_one_line(target: Place, tmp_path: Path, url: str, said: str) -> None:
    told = refused(Place.at(url, tmp_path), target)
    assert told.startswith(said)
    assert "hidden" not in told
    assert not (tmp_path / "nowhere.db").exists()


def test_a_file_that_is_not_a_database_is_reported_in_one_line(target: Place, tmp_path: Path) -> None:
    (tmp_path / "old.db").write_bytes(b"not a database" * 1_000)
    assert refused(Place.at("sqlite:///old.db", tmp_path), target).endswith("SQLITE_NOTADB")


@both_ways
def test_another_level_of_the_schema_is_refused(source: Place, target: Place, tmp_path: Path) -> None:
    (tmp_path / "bare.db").touch()
    assert "FROM lacks migrations" in refused(Place.at("sqlite:///bare.db", tmp_path), target)
    newer = ("INSERT INTO schema_migrations VALUES ('9999_next.sql', 'x', 1)", ())
    source.change(newer)
    assert refused(source, target) == "FROM has migrations that this release does not know: 9999_next.sql"
    source.change(("DELETE FROM schema_migrations WHERE name = '9999_next.sql'", ()))
    target.change(newer)
    try:
        assert refused(source, target) == "TO has migrations that this release does not know: 9999_next.sql"
    finally:
        target.change(("DELETE FROM schema_migrations WHERE name = '9999_next.sql'", ()))
    assert target.rows() == NOTHING


def test_postgresql_is_migrated_when_that_is_said(file: Place, cluster: Cluster) -> None:
    target = Place.at(
        asyncio.run(cluster.create_database(f"bare-{file.settings.data_dir.name}")), file.settings.data_dir
    )
    assert refused(file, target).startswith("TO: the database lacks migrations: 0001_initial.sql")
    said = run(
        "database", "copy", file.url, target.url, data=file.settings.data_dir, MUNIMENT_MIGRATE_AT_START="true"
    )  # fmt: skip
    assert said.exit_code == 0, said.output
    assert target.rows() == file.rows()


def test_blocks_go_first(cluster: Cluster, tmp_path: Path) -> None:
    source = Place.at("sqlite:///old.db", tmp_path)

    async def deployed() -> None:
        async with opened(source, Clock()) as context, client_of(Application(context)) as client:
            for name in ("One", "Other"):
                await deploy(client, Bundle(name))

    asyncio.run(deployed())
    target = asyncio.run(new_database(cluster, f"blocks-{tmp_path.name}", tmp_path))
    told = refused(source, target)
    assert told.startswith("TO lacks the blocks of 2 functions of FROM, the first is ")
    assert refused(source, target, "--blocks", f"file://{tmp_path}/elsewhere") == told
    assert "not in another 'ftp' place" in refused(source, target, "--blocks", "ftp://x")
    assert target.rows() == NOTHING
    assert copy(source, target, "--blocks", "file:").exit_code == 0


# What the process of a command does before it begins: at the eleventh time that rows are written, three at a time.
CODE = """
import os, signal
from muniment.cli.main import main
from muniment.service.storage.postgres.admin import copying as postgres_copying
from muniment.service.storage.sqlite import copying as sqlite_copying
module = {module}
module.ROWS_PER_BATCH = sqlite_copying.ROWS_PER_BATCH = postgres_copying.ROWS_PER_BATCH = 3
add, calls = module._Target.add, iter(range(1000))
async def interrupted(*arguments):
    await add(*arguments)
    if next(calls) == 10:
        os.kill(os.getpid(), signal.{signal})
module._Target.add = interrupted
main({arguments!r})
"""


@pytest.mark.parametrize("name", ["SIGKILL", "SIGINT", "SIGTERM"])
def test_an_interrupted_copy_leaves_nothing_and_is_made_again(file: Place, target: Place, name: str) -> None:
    module = "sqlite_copying" if target.is_sqlite else "postgres_copying"
    arguments = ["database", "copy", file.url, target.url, "--data-dir", str(file.settings.data_dir)]
    code = CODE.format(module=module, signal=name, arguments=arguments)
    done = warm.run(program=["-c", code])
    assert done.returncode == (130 if name == "SIGINT" else -signal.Signals[name])
    assert done.stderr.startswith("Interrupted. TO is empty or complete" if name == "SIGINT" else "")
    assert done.stdout == ""
    assert target.rows() == NOTHING
    assert copy(file, target).exit_code == 0
    assert target.rows() == file.rows()


@pytest.mark.parametrize("lost", ["FROM", "TO"])
def test_a_server_that_is_lost_on_the_way_ends_it_and_leaves_nothing(
    cluster: Cluster, postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    source = asyncio.run(new_database(cluster, f"lost-{tmp_path.name}", tmp_path))
    source.change(*USERS, *FACTS)
    target = Place.at(postgres_url, tmp_path)
    name = (source if lost == "FROM" else target).url.rpartition("/")[2]
    cut = f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'"
    monkeypatch.setattr(postgres_copying, "ROWS_PER_BATCH", 3)
    after_rows(monkeypatch, 7, lambda: asyncio.run(cluster.execute(cut)))
    assert refused(source, target).startswith(f"{lost} fails: ")
    monkeypatch.undo()
    assert target.rows() == NOTHING
    assert copy(source, target).exit_code == 0


def after_rows(monkeypatch: pytest.MonkeyPatch, times: int, do: Callable[[], object]) -> None:
    """Have `do` done in a thread when rows were written that often."""
    calls = iter(range(1_000))
    for module in (sqlite_copying, postgres_copying):
        add = module._Target.add

        async def added(*arguments: object, add: Callable[..., object] = add) -> None:
            await add(*arguments)  # pyright: ignore[reportGeneralTypeIssues] - a method of either
            if next(calls) == times - 1:
                await asyncio.to_thread(do)

        monkeypatch.setattr(module._Target, "add", added)


@both_ways
def test_nothing_is_seen_of_it_before_it_is_complete(
    source: Place, target: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[object] = []
    for module in (sqlite_copying, postgres_copying):
        monkeypatch.setattr(module, "ROWS_PER_BATCH", 3)
    after_rows(monkeypatch, 12, lambda: seen.append(target.rows()))
    assert copy(source, target).exit_code == 0
    assert seen == [NOTHING]
    assert target.rows() == source.rows()


@both_ways
@pytest.mark.parametrize(
    "change",
    [
        ("INSERT INTO users (address, created_at_ms) VALUES (?, 99)", (ADDRESS,)),
        ("UPDATE users SET key_generation = 2 WHERE created_at_ms = 3", ()),
        ("DELETE FROM chain_blocks", ()),
    ],
    ids=["a new row", "another", "one that went"],
)
def test_who_writes_meanwhile_is_noticed_and_not_followed(
    source: Place, target: Place, monkeypatch: pytest.MonkeyPatch, change: tuple[LiteralString, tuple[object, ...]]
) -> None:
    before = source.rows()
    after_rows(monkeypatch, 1, lambda: source.change(change))
    result = copy(source, target, "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["changed_meanwhile"] is True
    assert result.stderr.startswith("FROM was written to during the copy")
    assert target.rows() == before != source.rows()


@both_ways
def test_a_source_that_is_gone_in_the_end_has_been_copied(
    source: Place, target: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def gone(_: object) -> bool:
        raise DatabaseUnavailable("gone")

    for module in (sqlite_copying, postgres_copying):
        monkeypatch.setattr(module._Source, "has_changed", gone)
    result = copy(source, target, "--json")
    assert (result.exit_code, json.loads(result.stdout)["changed_meanwhile"]) == (1, None)
    assert result.stderr.startswith("TO is a complete copy, but FROM no longer answers")
    assert target.rows() == source.rows()


def test_who_writes_to_the_target_is_waited_for_a_moment(
    file: Place, target: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MUNIMENT_MIGRATE_AT_START", "false")
    # Shorter than a statement may take, and no matter how long, since nobody ends the other transaction.
    monkeypatch.setitem(postgres_connection.SESSION, "lock_timeout", "500")
    monkeypatch.setattr(sqlite_copying, "connect", partial(sqlite_copying.connect, busy_timeout_ms=500))

    async def while_writing() -> str:
        connection = await asyncpg.connect(target.url)
        async with connection.transaction():
            await connection.execute("INSERT INTO leases VALUES ('x', 'y', 1)")
            told = await asyncio.to_thread(refused, file, target)
            await connection.execute("DELETE FROM leases")
        await connection.close()
        return told

    if target.is_sqlite:
        with closing(sqlite3.connect(tmp_path / "new.db", isolation_level=None)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            told = refused(file, target)
    else:
        told = asyncio.run(while_writing())
    assert told == "another process is writing to TO; stop it first"


def test_a_count_that_differs_keeps_nothing(file: Place, target: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    module = sqlite_copying if target.is_sqlite else postgres_copying
    add = module._Target.add

    async def forgets(self: object, table: str, columns: object, rows: list[object]) -> None:
        await add(self, table, columns, rows[:-1])  # pyright: ignore[reportArgumentType, reportCallIssue] - as it was called

    monkeypatch.setattr(module._Target, "add", forgets)
    assert refused(file, target) == "users: FROM has 30 rows, but TO got 29; TO was rolled back"
    monkeypatch.undo()
    assert target.rows() == NOTHING


def test_what_cannot_be_committed_is_not_there(file: Place, target: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    module = sqlite_copying if target.is_sqlite else postgres_copying

    async def fails(*_: object) -> None:
        raise OSError("the disk is full")

    monkeypatch.setattr(module._Target, "commit", fails)
    assert refused(file, target) == "the disk is full"
    monkeypatch.undo()
    assert target.rows() == NOTHING
