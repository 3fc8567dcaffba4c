"""Records of a log in a table on disk, to find a second entry of one: there may be millions."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, MutableMapping
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

_TABLE = "CREATE TABLE IF NOT EXISTS known (key BLOB PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID"


class KnownRecords(MutableMapping[bytes, bytes]):
    """A mapping in a database."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        """Keep the table in this database."""
        self._connection = connection

    def __getitem__(self, key: bytes) -> bytes:
        row = self._connection.execute("SELECT value FROM known WHERE key = ?", (key,)).fetchone()
        if row is None:
            raise KeyError(key)
        return row[0]

    def __setitem__(self, key: bytes, value: bytes) -> None:
        self._connection.execute("INSERT OR REPLACE INTO known VALUES (?, ?)", (key, value))

    def __delitem__(self, key: bytes) -> None:
        if not self._connection.execute("DELETE FROM known WHERE key = ?", (key,)).rowcount:
            raise KeyError(key)

    def __iter__(self) -> Iterator[bytes]:
        with closing(self._connection.execute("SELECT key FROM known")) as rows:
            for (key,) in rows:
                yield key

    def __len__(self) -> int:
        return self._connection.execute("SELECT count(*) FROM known").fetchone()[0]

    def clear(self) -> None:
        """Remove all records."""
        self._connection.execute("DELETE FROM known")


@contextmanager
def known_records(path: Path | None) -> Generator[KnownRecords]:
    """The records in the file at `path`, which is created; without one in a temporary file.

    Changes are kept if the block ends without an error. Raises `ValueError` for a file of another form.
    """
    try:
        with closing(sqlite3.connect("" if path is None else path, isolation_level=None)) as connection:
            connection.execute("PRAGMA journal_mode = DELETE")
            connection.execute(_TABLE)
            connection.execute("BEGIN IMMEDIATE")
            yield KnownRecords(connection)
            connection.execute("COMMIT")
    except sqlite3.Error as error:
        raise ValueError(f"{path} cannot be used: {error}") from error
