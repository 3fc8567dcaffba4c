"""Takes a snapshot of an SQLite database while others write, and reads and checks it; the backup commands use it."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Final, LiteralString, Self

from muniment import durable
from muniment.protocol.errors import DatabaseUnavailable, Integrity
from muniment.service.storage.migrate import migrations, missing
from muniment.service.storage.sqlite.connection import connect

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from muniment.service.storage.database import Parameters, Row

# Pages per step (4 MiB): Ctrl-C and the progress bar wait for the end of a step.
_PAGES_PER_STEP: Final = 1_000


def take_snapshot(
    source: Path, target: Path, advance: Callable[[int, int], None], *, pages_per_step: int = _PAGES_PER_STEP
) -> None:
    """Copy all committed rows to the new file `target`, durably, while other processes may write to `source`.

    `advance` is called after each step with the number of copied pages and of all pages. Raises `DatabaseUnavailable`,
    and `OSError` when `target` exists.
    """
    os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    try:
        with closing(connect(source, read_only=True)) as reading, closing(sqlite3.connect(target)) as writing:
            writing.execute("PRAGMA journal_mode=OFF")  # no process uses an incomplete copy
            writing.execute("PRAGMA synchronous=OFF")
            # Without a transaction SQLite starts again whenever another process writes between two steps, and under
            # constant writes never ends (https://sqlite.org/c3ref/backup_finish.html). In WAL mode no writer waits.
            reading.execute("BEGIN")
            reading.execute("SELECT 1 FROM sqlite_master").fetchone()
            reading.backup(
                writing, pages=pages_per_step, progress=lambda _, remaining, total: advance(total - remaining, total)
            )
    except sqlite3.Error as error:
        raise DatabaseUnavailable(f"the database cannot be copied: {error}") from error
    durable.flush_file(target)


class StillDatabase:
    """A database file that no process writes, read without locks and without further files.

    Every method raises `Integrity` when the file is damaged, or is not a database.
    """

    def __init__(self, path: Path) -> None:
        """Open the file at `path`, which exists and has no log."""
        self._connection = sqlite3.connect(
            f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True, isolation_level=None
        )

    def check(self) -> None:
        """Return if every page and index is sound, and the schema is that of this service."""
        for (finding,) in self.fetch("PRAGMA integrity_check(1)"):
            if finding != "ok":
                raise Integrity(f"the database is damaged: {' '.join(str(finding).split())}")
        if not [*self.fetch("SELECT 1 FROM sqlite_master WHERE name = 'schema_migrations'")]:
            raise Integrity("the database is not one of this service")

    def newer_migrations(self) -> list[str]:
        """The applied migrations of newer releases.

        Raises `AnotherRevision` when a migration of this release was applied with other contents.
        """
        applied = {str(name): str(sha256) for name, sha256 in self.fetch("SELECT name, sha256 FROM schema_migrations")}
        known = migrations("sqlite")
        missing(known, applied)
        return sorted(applied.keys() - {migration.name for migration in known})

    def fetch(self, sql: LiteralString, parameters: Parameters = ()) -> Iterator[Row]:
        """The rows of a query, one by one."""
        try:
            yield from self._connection.execute(sql, parameters)
        except sqlite3.DatabaseError as error:
            raise Integrity(f"the database is damaged: {error}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()
