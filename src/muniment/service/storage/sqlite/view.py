"""Keeps a read transaction (a view) for many reads of the event loop, until any process commits; `engine` uses it."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import suppress
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from muniment.service.storage.last_commit import LastCommit

# The life of a view: a commit of a program that does not write `LastCommit` is missed for at most this long, and a
# checkpoint (`commits`) waits this long.
VIEW_SECONDS_MAX: Final = 0.05


class View:
    """A connection that keeps its view for several reads: beginning a transaction costs as much as reading a row.

    Reads see every acknowledged commit: `LastCommit` changes before the acknowledgement, and then a new view begins.
    They also see every commit that a read of another process has seen: while a commit is under way each read has a view
    of its own.
    """

    def __init__(self, connection: sqlite3.Connection, last_commit: LastCommit) -> None:
        """Use `connection`, which no other code uses."""
        self._connection = connection
        self._last_commit = last_commit
        # The commit that was the last one when the view began; None: one was under way.
        self._seen: int | None = None
        # By the monotonic clock.
        self._until = 0.0
        # The event loop that will end the view after the last read.
        self._ends_on: asyncio.AbstractEventLoop | None = None

    def connection(self, now: float) -> sqlite3.Connection:
        """The connection, for one read before the next await; `now` is the time by the monotonic clock.

        Raises `sqlite3.DatabaseError`.
        """
        begun, ended = self._last_commit.numbers()
        if begun != self._seen or ended != self._seen or now >= self._until:
            self._renew(now)
        return self._connection

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _renew(self, now: float) -> None:
        begun, ended = self._last_commit.numbers()  # before the view begins, so that no commit in between is missed
        if self._connection.in_transaction:
            self._connection.execute("COMMIT")
        self._connection.execute("BEGIN")
        self._seen = begun if begun == ended else None
        # If the numbers are not shared, commits of other processes do not change them, so a view serves one read only.
        self._until = now + (VIEW_SECONDS_MAX if self._last_commit.is_shared else 0)
        loop = asyncio.get_running_loop()
        if self._ends_on is not loop:
            self._ends_on = loop
            loop.call_later(VIEW_SECONDS_MAX, self._end)

    def _end(self) -> None:
        """End the view; it may have been renewed since this call was scheduled."""
        self._ends_on = None
        self._until = 0.0
        try:
            if self._connection.in_transaction:
                self._connection.execute("COMMIT")
        except sqlite3.Error:  # the database is closed or failing; the next read raises
            with suppress(sqlite3.Error):
                self._connection.execute("ROLLBACK")
