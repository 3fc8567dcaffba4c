"""What the event loop reads of an SQLite file: one view for many reads, until somebody commits."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from muniment.storage.last_commit import LastCommit

# How long a read transaction lasts. What a process that does not advance `LastCommit` has committed is missed for so
# long at most, and so long a checkpoint waits for a reader (`sqlite_commits`).
VIEW_SECONDS_MAX: Final = 0.05


class View:
    """A connection that reads, in a transaction that is kept: to begin one costs as much as to read a row.

    Whoever was told of a commit reads in a transaction begun since, because `LastCommit` has changed by then.
    """

    def __init__(self, connection: sqlite3.Connection, last_commit: LastCommit) -> None:
        """Read on `connection`, which nobody else uses."""
        self._connection = connection
        self._last_commit = last_commit
        self._seen = 0
        # By the monotonic clock.
        self._until = 0.0
        # The event loop that will end the view when nobody reads any more.
        self._ends_on: asyncio.AbstractEventLoop | None = None

    def connection(self) -> sqlite3.Connection:
        """The connection, to read on at once. Raises `sqlite3.DatabaseError`."""
        if self._last_commit.numbers[0] != self._seen or time.monotonic() >= self._until:
            self._renew()
        return self._connection

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _renew(self) -> None:
        seen = self._last_commit.numbers[0]  # before the view begins: what is committed since has another number
        if self._connection.in_transaction:
            self._connection.execute("COMMIT")
        self._connection.execute("BEGIN")
        self._seen = seen
        # Without the others' commits a view is for one read alone.
        self._until = time.monotonic() + (VIEW_SECONDS_MAX if self._last_commit.is_shared else 0)
        loop = asyncio.get_running_loop()
        if self._ends_on is not loop:
            self._ends_on = loop
            loop.call_later(VIEW_SECONDS_MAX, self._end)

    def _end(self) -> None:
        """End the view, which may be a later one than that for which the loop was asked."""
        self._ends_on = None
        self._until = 0.0
        try:
            if self._connection.in_transaction:
                self._connection.execute("COMMIT")
        except sqlite3.Error:  # the database is closed, or fails, and will say so to who asks next
            with suppress(sqlite3.Error):
                self._connection.execute("ROLLBACK")
