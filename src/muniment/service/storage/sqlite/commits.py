"""Commits to an SQLite file, and checks that a restarted process would find the commit; `writer` uses it."""

from __future__ import annotations

import math
import sqlite3
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from muniment.protocol.errors import DatabaseUnavailable
from muniment.service.running.metrics.recorder import DatabaseMetrics
from muniment.service.storage.sqlite.connection import CHECKPOINT_PAGES

if TYPE_CHECKING:
    from muniment.service.storage.sqlite.files import Files

# The length of a log with `CHECKPOINT_PAGES` pages and their headers (https://sqlite.org/fileformat2.html#walformat).
LOG_BYTES: Final = 32 + CHECKPOINT_PAGES * (24 + 4_096)
# How long a checkpoint waits for views to end, twice: several times their life (`view`).
_VIEWS_MS: Final = 250
# Between two tries to copy the whole log.
_TRY_MS: Final = 4


class Commits:
    """The connection that writes, its open files, and the outcome of its last commits."""

    def __init__(
        self, connection: sqlite3.Connection, files: Files,
        *, log_bytes: int = LOG_BYTES, metrics: DatabaseMetrics | None = None,
    ) -> None:  # fmt: skip
        """Before the first commit. No method waits for the write lock, because the event loop would wait with it.

        A log of more than `log_bytes` is copied into the database.
        """
        connection.execute("PRAGMA busy_timeout=0")
        self.connection = connection
        self.files = files
        self.metrics = metrics or DatabaseMetrics()
        # The number of commits; it changes before their callers get the outcome.
        self.count = 0
        # The monotonic time of the last commit that changed anything.
        self.succeeded_at = -math.inf
        # SQLite opened the file read-only; that lasts until the file is opened again.
        self.is_read_only = False
        # The files were not in their places at the last check.
        self._is_lost = False
        self._changes: int = connection.total_changes
        self._log_bytes = log_bytes
        # A longer log is copied into the database at the next try.
        self._log_bytes_max = log_bytes
        # SQLite's own checkpoint after a commit does not wait for readers. While any reader has an older view, it never
        # reaches the end of the log, and the log would grow without limit.
        connection.execute("PRAGMA wal_autocheckpoint=0")
        connection.execute(f"PRAGMA journal_size_limit={log_bytes}")

    def begin(self) -> bool:
        """Begin a write transaction; False if another process is writing."""
        try:
            self.connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY:
                return False
            raise
        return True

    def commit(self) -> None:
        """Return once the transaction is on disk: in WAL mode with synchronous=FULL a COMMIT ends with an fsync.

        The files must also be in their places, where other processes look for them; otherwise this raises
        `DatabaseUnavailable`. If the last check succeeded, they are checked only after the commit.
        """
        begun = time.perf_counter()
        if self._is_lost:
            self._check_files()
        changes = self.connection.total_changes
        try:
            self.connection.execute("COMMIT")
        finally:
            self.count += 1
        try:
            self._check_files()
        except DatabaseUnavailable as error:
            raise DatabaseUnavailable(f"the database was lost while it committed: {error.detail}") from error
        if changes != self._changes:
            self._changes, self.succeeded_at = changes, time.monotonic()
        self.metrics.commits.observe(time.perf_counter() - begun)

    def shorten_log(self) -> None:
        """Copy a long log into the database, so that the log begins again; call this between two transactions.

        It waits until no view is older than the last commit, and then until none reads from the log. It does not wait
        for a longer reader, such as a backup: it tries again when the log has grown by the same length.
        """
        with suppress(OSError, sqlite3.Error):  # no commit is lost; the next one fails with the reason
            log_bytes = self.files.log_bytes()
            if log_bytes <= self._log_bytes:
                self._log_bytes_max = self._log_bytes
            elif log_bytes > self._log_bytes_max:
                self._log_bytes_max = log_bytes + self._log_bytes
                if self._copy_log():
                    self._begin_log_again()

    def _check_files(self) -> None:
        self._is_lost = True
        self.files.check()
        self._is_lost = False

    def failed(self, error: BaseException) -> str:
        """Note the error of a transaction that was rolled back; returns the reason for the callers."""
        self.metrics.fail("write")
        self._changes = self.connection.total_changes
        if isinstance(error, DatabaseUnavailable):
            self._save_log()
            return error.detail
        self.is_read_only = getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_READONLY
        return f"the database cannot write now: {self.files.reason(error)}"

    def _save_log(self) -> None:
        """Copy the log into the database if only the log file was removed: its content would end with this process."""
        with suppress(sqlite3.Error):  # the callers get the reason in any case
            if self.files.have_lost_the_log_alone():
                self._copy_log()

    def _copy_log(self) -> bool:
        """Whether the whole log is in the database now: pages that are newer than an open view are not copied.

        SQLite's own wait is for a lock that the next view of the service takes at once, so it would hardly ever end.
        """
        for _ in range(_VIEWS_MS // _TRY_MS):
            is_busy, pages, copied = self.connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            if not is_busy and pages == copied:
                return True
            time.sleep(_TRY_MS / 1000)
        return False

    def _begin_log_again(self) -> None:
        """Let the next commit begin the log again, once no view reads from it: new views read from the database."""
        self.connection.execute(f"PRAGMA busy_timeout={_VIEWS_MS}")
        try:
            self.connection.execute("PRAGMA wal_checkpoint(RESTART)").fetchone()
        finally:
            self.connection.execute("PRAGMA busy_timeout=0")
