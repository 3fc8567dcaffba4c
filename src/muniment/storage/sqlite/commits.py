"""Commits of an SQLite database that whoever opens it finds, or that are not acknowledged."""

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

# The length of a log of as many pages, each with a header of its own (https://sqlite.org/fileformat2.html#walformat).
LOG_BYTES: Final = 32 + CHECKPOINT_PAGES * (24 + 4_096)
# What a checkpoint waits for readers: several times as long as any view lasts (`sqlite_view`).
_VIEWS_MS: Final = 250


class Commits:
    """A connection that writes, the files it has open, and how its last commits went."""

    def __init__(self, connection: sqlite3.Connection, files: Files, last_commit: LastCommit) -> None:
        """Before the first commit. A turn to write is never waited for in here, since the event loop would wait too."""
        connection.execute("PRAGMA busy_timeout=0")
        self.connection = connection
        self.files = files
        self._last_commit = last_commit
        # When a commit that changed something was last on disk, by the monotonic clock.
        self.succeeded_at = -math.inf
        # The file was opened where nothing could be written. That stays so until it is opened again.
        self.is_read_only = False
        # The files were not in their places when they were last looked for.
        self._is_lost = False
        self._changes: int = connection.total_changes
        # The log is copied into the database when it is longer.
        self._log_bytes_max = LOG_BYTES
        # SQLite's own checkpoints, behind a commit, wait for nobody: they never reach the end of a log while somebody
        # keeps a view from before that commit, so that the log would grow without end.
        connection.execute("PRAGMA wal_autocheckpoint=0")
        connection.execute(f"PRAGMA journal_size_limit={LOG_BYTES}")

    def begin(self) -> bool:
        """Open a transaction that writes; False when another process is writing."""
        try:
            self.connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY:
                return False
            raise
        return True

    def commit(self) -> None:
        """Return once the transaction is on disk: in WAL mode with synchronous=FULL a COMMIT ends with an fsync.

        And once it is sure that it is on the disk where others look for it. Files that were in their places at the
        last commit are looked for only behind this one. Raises `DatabaseUnavailable` when they are not.
        """
        if self._is_lost:
            self._look_for_files()
        changes = self.connection.total_changes
        self.connection.execute("COMMIT")
        self._last_commit.advance()
        try:
            self._look_for_files()
        except DatabaseUnavailable as error:
            raise DatabaseUnavailable(f"the database was lost while it committed: {error.detail}") from error
        if changes != self._changes:
            self._changes, self.succeeded_at = changes, time.monotonic()

    def shorten_log(self) -> None:
        """Copy a long log into the database, so that it begins anew; called between two transactions.

        This waits until no view is older than the last commit, and then until none reads from the log. Who reads for
        longer, such as a backup, is not waited for: the next try comes when the log has grown as much again.
        """
        with suppress(OSError, sqlite3.Error):  # nothing is lost, and the next commit says what is wrong
            log_bytes = self.files.log_bytes()
            if log_bytes <= LOG_BYTES:
                self._log_bytes_max = LOG_BYTES
            elif log_bytes > self._log_bytes_max:
                self._log_bytes_max = log_bytes + LOG_BYTES
                self._checkpoint("RESTART")

    def _look_for_files(self) -> None:
        self._is_lost = True
        self.files.check()
        self._is_lost = False

    def failed(self, error: BaseException) -> str:
        """Take note of an error that ended a transaction, which is rolled back; what callers are told."""
        self._changes = self.connection.total_changes
        if isinstance(error, DatabaseUnavailable):
            self._save_log()
            return error.detail
        self.is_read_only = getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_READONLY
        return f"the database cannot write now: {self.files.reason(error)}"

    def _save_log(self) -> None:
        """Copy what was acknowledged into the database, where only the log has lost its name: the log ends with us.

        Nothing behind an older view is copied, so this waits for the views of other processes to end.
        """
        with suppress(sqlite3.Error):  # what is wrong is known, and all are told
            if self.files.have_lost_the_log_alone():
                self._checkpoint("FULL")

    def _checkpoint(self, mode: str) -> None:
        self.connection.execute(f"PRAGMA busy_timeout={_VIEWS_MS}")
        try:
            self.connection.execute(f"PRAGMA wal_checkpoint({mode})").fetchone()
        finally:
            self.connection.execute("PRAGMA busy_timeout=0")
