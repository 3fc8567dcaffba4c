"""Keeps one read transaction (a view) for many reads of the event loop, until any process commits; `engine` uses it."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from muniment.storage.last_commit import LastCommit

# How long a view lasts. A commit of a process that does not advance `LastCommit` is missed for so long at most, and a
# checkpoint (`commits`) waits for so long.
VIEW_SECONDS_MAX: Final = 0.05


class View:
    """A connection that reads in a view, which it keeps: to begin a transaction costs as much as to read a row.

    After a commit was acknowledged, reads see it: `LastCommit` has changed by then, and so a new view begins.
    """

    def __init__(self, connection: sqlite3.Connection, last_commit: LastCommit) -> None:
        """Read on `connection`, which no other code uses."""
        self._connection = connection
        self._last_commit = last_commit
        self._seen = 0
        # By the monotonic clock.
        self._until = 0.0
        # The event loop that will end the view when there are no more reads.
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
        seen = self._last_commit.numbers[0]  # before the view begins: a commit after this has another number
        if self._connection.in_transaction:
            self._connection.execute("COMMIT")
        self._connection.execute("BEGIN")
        self._seen = seen
        # While commits of other processes are not seen, a view is for one read only.
        self._until = time.monotonic() + (VIEW_SECONDS_MAX if self._last_commit.is_shared else 0)
        loop = asyncio.get_running_loop()
        if self._ends_on is not loop:
            self._ends_on = loop
            loop.call_later(VIEW_SECONDS_MAX, self._end)

    def _end(self) -> None:
        """End the view, or a later one: a view may have been renewed since the loop was asked."""
        self._ends_on = None
        self._until = 0.0
        try:
            if self._connection.in_transaction:
                self._connection.execute("COMMIT")
        except sqlite3.Error:  # the database is closed or fails; the next read reports it
            with suppress(sqlite3.Error):
                self._connection.execute("ROLLBACK")
