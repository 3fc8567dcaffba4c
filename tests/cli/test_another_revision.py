"""A registry of another revision is refused by every command that opens one, and every byte and row stays."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, get_args

import asyncpg
import pytest
from click.testing import CliRunner

import warm
from muniment.cli.main import main
from muniment.service.running.directory_lock import LOCK_FILE
from other_revision import End, other_database, other_directory
from postgres import Cluster
from registry_commands import NEEDS, commands

SENTENCE = (
    "another revision of muniment made this database (0001_initial.sql differs), and this one does not upgrade it; "
    "nothing was changed. Keep that revision to read what the database holds. Begin a new registry with this one, and "
    "post functions, triggers and deactivations again; intents stay with the old registry"
)
# With the option `--data-dir`, and without a need of the database.
OPEN_NO_DATABASE = {"config", "ping", "secrets list", "secrets rotate", "secrets retire", "chains check"}
# It refuses every registry that is in its place; a backup of another revision is among those of test_backup_damaged.py.
REPLACES_NONE = {"restore"}
MAKE = {"serve": ["--port", "0"], "demo": ["--port", "0"], "migrate": []}
# Further arguments of commands that open two places.
BOTH_WAYS = [("blocks copy", ["file:", "database:"]), ("database copy", ["sqlite:///{new}", "database:"])]
MIGRATE = "MUNIMENT_MIGRATE_AT_START"
# This ends a hang.
SECONDS_MAX = 60


def opening() -> list[tuple[str, list[str]]]:
    """Each command that opens a registry, from the commands that there are, with its arguments."""
    no = OPEN_NO_DATABASE | REPLACES_NONE
    names = [name for name, each in commands(main) if any(p.name == "data_dir" for p in each.params) and name not in no]
    return [(name, {**NEEDS, **MAKE}[name]) for name in names] + BOTH_WAYS


def outcome(name: str, arguments: list[str], *options: str, migrates: str = "auto") -> tuple[int, str]:
    """The exit status of a command, and all that it printed."""
    words = [*name.split(), *arguments, *options]
    if name in MAKE:  # one that is not refused goes on
        done = warm.run(*words, timeout=SECONDS_MAX, environment={MIGRATE: migrates})
        return done.returncode, done.stdout + done.stderr
    result = CliRunner().invoke(main, words, env={MIGRATE: migrates})
    return result.exit_code, result.output


def files(directory: Path) -> dict[str, bytes | None]:
    """Every file below a directory with its bytes, and every directory."""
    return {
        str(each.relative_to(directory)): each.read_bytes() if each.is_file() else None for each in directory.rglob("*")
    }


@pytest.fixture
def new(tmp_path: Path, migrated_file: Path) -> Path:
    """The file of an empty registry of this revision."""
    path = tmp_path / "new" / "muniment.db"
    path.parent.mkdir()
    path.write_bytes(migrated_file.read_bytes())
    return path


def with_places(arguments: list[str], tmp_path: Path, new: Path) -> list[str]:
    return [str(tmp_path / "backup") if each == "BACKUP" else each.format(new=new) for each in arguments]


@pytest.mark.parametrize("end", get_args(End))
@pytest.mark.parametrize("migrates", ["auto", "false"])
def test_on_sqlite_no_byte_changes_and_no_file_comes(
    tmp_path: Path, new: Path, end: End, migrates: str, subtests: pytest.Subtests
) -> None:
    data = tmp_path / "data"
    other_directory(data, end)
    before = files(tmp_path)
    for name, arguments in opening():
        with subtests.test(name, arguments=arguments):
            ours = with_places(arguments, tmp_path, new)
            status, output = outcome(name, ours, "--data-dir", str(data), migrates=migrates)
            assert (status != 0, SENTENCE in " ".join(output.split())) == (True, True), output
            after = files(tmp_path)
            assert {path for path in {*before, *after} if before.get(path, 0) != after.get(path, 0)} == set()


@pytest.fixture
def rows(cluster: Cluster, tmp_path: Path) -> tuple[str, Any]:
    """The URL of a PostgreSQL database of another revision, and a function that reads all that it has."""
    name = f"other-{tmp_path.name}"
    url = asyncio.run(other_database(cluster, name))

    async def read() -> dict[str, list[Any]]:
        connection = await asyncpg.connect(url)
        try:
            tables = await connection.fetch(
                "SELECT relname FROM pg_class WHERE relkind IN ('r', 'S') AND relnamespace = 'public'::regnamespace"
            )
            return {table: await connection.fetch(f'SELECT * FROM "{table}"') for (table,) in tables}
        finally:
            await connection.close()

    return url, lambda: asyncio.run(read())


@pytest.mark.parametrize("migrates", ["auto", "true"])
def test_on_postgresql_no_row_changes_and_no_directory_is_locked(
    tmp_path: Path, new: Path, rows: tuple[str, Any], migrates: str, subtests: pytest.Subtests
) -> None:
    data, (url, read) = tmp_path / "data", rows
    other_directory(data)
    before = read()
    for name, arguments in opening():
        if name == "backup":  # of SQLite alone
            continue
        with subtests.test(name, arguments=arguments):
            ours = with_places(arguments, tmp_path, new)
            options = ["--database-url", url, "--data-dir", str(data)]
            status, output = outcome(name, ours, *options, migrates=migrates)
            assert (status != 0, SENTENCE in " ".join(output.split())) == (True, True), output
            assert (read(), (data / LOCK_FILE).exists()) == (before, False)


def test_the_demo_names_another_place(tmp_path: Path) -> None:
    other_directory(tmp_path / "data")
    status, output = outcome("demo", MAKE["demo"], "--data-dir", str(tmp_path / "data"))
    assert (status, "`muniment demo --data-dir DIR`, or `make run DATA=DIR`" in output) == (1, True), output
