"""Records and entries of a log in tables on disk: there may be millions."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, MutableMapping
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Self

from muniment.protocol.log.entries import DeactivationFact, Entry, FunctionFact, TriggerFact

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from pathlib import Path
    from types import TracebackType


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


_TABLES = """
CREATE TABLE entries (name TEXT PRIMARY KEY, entry BLOB NOT NULL, is_listed INTEGER NOT NULL DEFAULT 0) WITHOUT ROWID;
CREATE TABLE ended (sig TEXT, signer TEXT, signature TEXT NOT NULL, PRIMARY KEY (sig, signer)) WITHOUT ROWID;
"""


class Ledger:
    """The entries of all epochs of a log. Use it in `with`: the file has no name, and is gone at the end."""

    def __enter__(self) -> Self:
        self._connection = sqlite3.connect("", isolation_level=None)  # a temporary database on disk
        self._connection.executescript(_TABLES)
        self._connection.execute("BEGIN")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.close()

    def add(self, _: int, fact: Entry | None) -> None:
        """Keep an entry, or replace that of the same record: a restored registry records lost records again."""
        if not isinstance(fact, FunctionFact | TriggerFact | DeactivationFact):
            return
        add = "INSERT OR REPLACE INTO entries (name, entry) VALUES (?, ?)"
        self._connection.execute(add, (name_of(fact), fact.data))
        if isinstance(fact, DeactivationFact):
            rows = [(sig, fact.signer, fact.signature) for sig in fact.trigger_sigs]
            self._connection.executemany("INSERT OR IGNORE INTO ended VALUES (?, ?, ?)", rows)

    def entry(self, name: str) -> bytes | None:
        """The entry for this record, which is listed by the registry."""
        self._connection.execute("UPDATE entries SET is_listed = 1 WHERE name = ?", (name,))
        row = self._connection.execute("SELECT entry FROM entries WHERE name = ?", (name,)).fetchone()
        return row[0] if row else None

    def ending(self, sig: str, signer: str) -> str | None:
        """The signature of the logged deactivation by `signer` that ends this trigger, if any."""
        sql = "SELECT signature FROM ended WHERE sig = ? AND signer = ?"
        row = self._connection.execute(sql, (sig, signer)).fetchone()
        return row[0] if row else None

    def unlisted(self, kind: str) -> Iterator[str]:
        """The names of entries of this kind (`trigger`, `function`) that the registry did not list."""
        sql = "SELECT name FROM entries WHERE name >= ? AND name < ? AND is_listed = 0"
        with closing(self._connection.execute(sql, (f"{kind} ", f"{kind}!"))) as rows:
            for (name,) in rows:
                yield name

    def deactivations(self) -> Iterator[bytes]:
        """The entries of deactivations."""
        sql = "SELECT entry FROM entries WHERE name >= 'deactivation ' AND name < 'deactivation!'"
        with closing(self._connection.execute(sql)) as rows:
            for (entry,) in rows:
                yield entry


def name_of(fact: FunctionFact | TriggerFact | DeactivationFact) -> str:
    """The name of a record, after its kind."""
    if isinstance(fact, TriggerFact):
        return f"trigger {fact.sig}"
    if isinstance(fact, FunctionFact):
        return f"function {fact.cid} {fact.uploader}"
    return f"deactivation {fact.signature}"
