"""The entries of a log in a table on disk, to be compared with the records of a registry: there may be millions."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Self

from muniment.tlog.entries import DeactivationFact, Entry, FunctionFact, TriggerFact

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

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
        """Keep an entry, in place of one for the same record: a restored registry records again what it has lost."""
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
        """The signature of the deactivation that ends this trigger of `signer`, who alone can, if the log has one."""
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
