"""An SQLite database as it was at one moment: taken while others write, then read and proved."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Final, Self

from muniment import durable
from muniment.errors import DatabaseUnavailable, Integrity
from muniment.storage.migrate import migrations, missing
from muniment.storage.sqlite.connection import connect

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from muniment.storage.database import Parameters, Row

# Copied at once (4 MiB): what Ctrl-C and a progress bar wait for.
_STEP_PAGES: Final = 1_000


def take_snapshot(source: Path, target: Path, advance: Callable[[int, int], None]) -> None:
    """Copy what is committed at this moment to the new file `target`, durably, whoever writes `source` meanwhile.

    `advance` is called after each step with the pages that are copied, and with all there are. Raises
    `DatabaseUnavailable`, and `OSError` when `target` is there.
    """
    os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    try:
        with closing(connect(source, read_only=True)) as reading, closing(sqlite3.connect(target)) as writing:
            writing.execute("PRAGMA journal_mode=OFF")  # until it is whole nobody uses it
            writing.execute("PRAGMA synchronous=OFF")
            # Without this SQLite begins anew whenever another process has written between two steps: under constant
            # writes for ever (https://sqlite.org/c3ref/backup_finish.html). In WAL mode nobody waits for a reader.
            reading.execute("BEGIN")
            reading.execute("SELECT 1 FROM sqlite_master").fetchone()
            reading.backup(
                writing, pages=_STEP_PAGES, progress=lambda _, remaining, total: advance(total - remaining, total)
            )
    except sqlite3.Error as error:
        raise DatabaseUnavailable(f"the database cannot be copied: {error}") from error
    durable.flush_file(target)


class StillDatabase:
    """A database file that nobody writes, read without locks and without a file beside it.

    Every method raises `Integrity` when the file is damaged, or is no database.
    """

    def __init__(self, path: Path) -> None:
        """Open the file at `path`, which is there and has no log."""
        self._connection = sqlite3.connect(
            f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True, isolation_level=None
        )

    def check(self) -> None:
        """Return when every page and index is sound, and a migration was ever applied."""
        for (said,) in self.fetch("PRAGMA integrity_check(1)"):
            if said != "ok":
                raise Integrity(f"the database is damaged: {' '.join(str(said).split())}")
        if not [*self.fetch("SELECT 1 FROM sqlite_master WHERE name = 'schema_migrations'")]:
            raise Integrity("the database is not one of this service")

    def newer_migrations(self) -> list[str]:
        """Migrations that were applied by a newer release than this one.

        Raises `ValueError` when one that is known here was applied with other contents.
        """
        applied = {str(name): str(sha256) for name, sha256 in self.fetch("SELECT name, sha256 FROM schema_migrations")}
        known = migrations("sqlite")
        missing(known, applied)
        return sorted(applied.keys() - {migration.name for migration in known})

    def fetch(self, sql: str, parameters: Parameters = ()) -> Iterator[Row]:
        """The rows of a query, one after the other."""
        try:
            yield from self._connection.execute(sql, parameters)
        except sqlite3.DatabaseError as error:
            raise Integrity(f"the database is damaged: {error}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()
