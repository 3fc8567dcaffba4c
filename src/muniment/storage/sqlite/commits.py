"""Commits to an SQLite file, and proves that a restarted process would find the commit; `writer` uses it."""

from __future__ import annotations

import math
import sqlite3
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from muniment.errors import DatabaseUnavailable
from muniment.storage.sqlite.connection import CHECKPOINT_PAGES

if TYPE_CHECKING:
    from muniment.storage.last_commit import LastCommit
    from muniment.storage.sqlite.files import Files

# The length of a log with `CHECKPOINT_PAGES` pages, each with its header (https://sqlite.org/fileformat2.html#walformat).
LOG_BYTES: Final = 32 + CHECKPOINT_PAGES * (24 + 4_096)
# How long a checkpoint waits for readers: several times as long as a view lasts (`view`).
_VIEWS_MS: Final = 250


class Commits:
    """A connection that writes, the files it has open, and how its last commits went."""

    def __init__(
        self, connection: sqlite3.Connection, files: Files, last_commit: LastCommit, *, log_bytes: int = LOG_BYTES
    ) -> None:
        """Before the first commit. Nothing here waits for the write lock: the event loop would wait with it.

        A log of more than `log_bytes` is copied into the database.
        """
        connection.execute("PRAGMA busy_timeout=0")
        self.connection = connection
        self.files = files
        self._last_commit = last_commit
        # When a commit that changed something was last on disk, by the monotonic clock.
        self.succeeded_at = -math.inf
        # The file was opened read-only, and stays so until it is opened again.
        self.is_read_only = False
        # The files were not in their places at the last check.
        self._is_lost = False
        self._changes: int = connection.total_changes
        self._log_bytes = log_bytes
        # A longer log is copied into the database at the next try.
        self._log_bytes_max = log_bytes
        # SQLite's own checkpoint after a commit waits for no reader. So it never reaches the end of the log while any
        # reader has a view from before that commit, and the log would grow without end.
        connection.execute("PRAGMA wal_autocheckpoint=0")
        connection.execute(f"PRAGMA journal_size_limit={log_bytes}")

    def begin(self) -> bool:
        """Begin a transaction that writes; False when another process is writing."""
        try:
            self.connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY:
                return False
            raise
        return True

    def commit(self) -> None:
        """Return once the transaction is on disk: in WAL mode with synchronous=FULL a COMMIT ends with an fsync.

        The files must also be in their places, where other processes look for them. If they were at the last commit,
        they are checked only after this one. Raises `DatabaseUnavailable` when they are not.
        """
        if self._is_lost:
            self._check_files()
        changes = self.connection.total_changes
        self.connection.execute("COMMIT")
        self._last_commit.advance()
        try:
            self._check_files()
        except DatabaseUnavailable as error:
            raise DatabaseUnavailable(f"the database was lost while it committed: {error.detail}") from error
        if changes != self._changes:
            self._changes, self.succeeded_at = changes, time.monotonic()

    def shorten_log(self) -> None:
        """Copy a long log into the database, so that it begins anew; called between two transactions.

        This waits until no view is older than the last commit, and then until none reads from the log. It does not wait
        for a longer reader, such as a backup: the next try comes when the log has grown by as much again.
        """
        with suppress(OSError, sqlite3.Error):  # no commit is lost, and the next commit fails with the reason
            log_bytes = self.files.log_bytes()
            if log_bytes <= self._log_bytes:
                self._log_bytes_max = self._log_bytes
            elif log_bytes > self._log_bytes_max:
                self._log_bytes_max = log_bytes + self._log_bytes
                self._checkpoint("RESTART")

    def _check_files(self) -> None:
        self._is_lost = True
        self.files.check()
        self._is_lost = False

    def failed(self, error: BaseException) -> str:
        """Note an error that ended a transaction, which was rolled back; the reason for the callers."""
        self._changes = self.connection.total_changes
        if isinstance(error, DatabaseUnavailable):
            self._save_log()
            return error.detail
        self.is_read_only = getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_READONLY
        return f"the database cannot write now: {self.files.reason(error)}"

    def _save_log(self) -> None:
        """Copy the log into the database if only the log was removed: its content would end with this process.

        Pages after an older view are not copied, so this waits for the views of other processes to end.
        """
        with suppress(sqlite3.Error):  # the callers get the reason in any case
            if self.files.have_lost_the_log_alone():
                self._checkpoint("FULL")

    def _checkpoint(self, mode: str) -> None:
        self.connection.execute(f"PRAGMA busy_timeout={_VIEWS_MS}")
        try:
            self.connection.execute(f"PRAGMA wal_checkpoint({mode})").fetchone()
        finally:
            self.connection.execute("PRAGMA busy_timeout=0")
