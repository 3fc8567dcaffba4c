"""Keeps a read transaction (a view) for many reads of the event loop; `engine` uses it."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import suppress
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from muniment.service.storage.sqlite.commits import Commits

# The life of a view: a commit of another process is missed for at most this long, and a checkpoint (`commits`) waits
# this long.
VIEW_SECONDS_MAX: Final = 0.05


class View:
    """A connection that keeps its view for several reads: beginning a transaction costs as much as reading a row.

    Reads see every acknowledged commit of this process: `Commits.count` changes before the acknowledgement, and then a
    new view begins.
    """

    def __init__(self, connection: sqlite3.Connection, commits: Commits) -> None:
        """Use `connection`, which no other code uses."""
        self._connection = connection
        self._commits = commits
        # The number of commits when the view began.
        self._seen = 0
        # By the monotonic clock.
        self._until = 0.0
        # The event loop that will end the view after the last read.
        self._ends_on: asyncio.AbstractEventLoop | None = None

    def connection(self, now: float) -> sqlite3.Connection:
        """The connection, for one read before the next await; `now` is the time by the monotonic clock.

        Raises `sqlite3.DatabaseError`.
        """
        count = self._commits.count  # before the view begins, so that no commit in between is missed
        if count != self._seen or now >= self._until:
            self._renew(count, now)
        return self._connection

    def expire(self) -> None:
        """Let the next read begin a new view, because it must see what another connection has seen or committed."""
        self._until = 0.0

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _renew(self, count: int, now: float) -> None:
        if self._connection.in_transaction:
            self._connection.execute("COMMIT")
        self._connection.execute("BEGIN")
        self._seen = count
        self._until = now + VIEW_SECONDS_MAX
        loop = asyncio.get_running_loop()
        if self._ends_on is not loop:
            self._ends_on = loop
            loop.call_later(VIEW_SECONDS_MAX, self._end)

    def _end(self) -> None:
        """End the view; it may have been renewed since this call was scheduled."""
        self._ends_on = None
        self.expire()
        try:
            if self._connection.in_transaction:
                self._connection.execute("COMMIT")
        except sqlite3.Error:  # the database is closed or failing; the next read raises
            with suppress(sqlite3.Error):
                self._connection.execute("ROLLBACK")
