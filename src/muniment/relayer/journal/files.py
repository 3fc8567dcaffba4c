"""The file of a journal: who may open it, and which files are one."""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from muniment import durable
from muniment.relayer.journal.schema import FORMAT, TABLES, convert

if TYPE_CHECKING:
    from pathlib import Path

# In the header of the file (https://sqlite.org/pragma.html#pragma_application_id): "muRJ".
_APPLICATION: Final = 0x6D75524A


class JournalError(ValueError):
    """The journal cannot be used: another process has it, or it has another form. The text says what to do."""


@contextmanager
def writing(path: Path) -> Generator[sqlite3.Connection]:
    """The file at `path` for the one process that writes it; it is made, or brought to the present format."""
    with _locked(path), _connected(path) as connection:
        format_ = _format(connection, path)
        connection.execute("PRAGMA journal_mode=WAL")
        if not format_:
            connection.executescript(
                f"BEGIN IMMEDIATE; {TABLES} PRAGMA application_id={_APPLICATION:d};"
                f"PRAGMA user_version={FORMAT:d}; COMMIT;"
            )
            durable.flush_directory(path.parent)
        elif format_ < FORMAT:
            convert(connection, format_)
        yield connection


@contextmanager
def reading(path: Path) -> Generator[sqlite3.Connection]:
    """The file at `path` to read, also while a relayer writes it. Raises `JournalError` when there is none."""
    if not path.is_file():
        raise JournalError(f"there is no journal at {path}")
    with _connected(path, mode="ro") as connection:
        format_ = _format(connection, path)
        if not format_:
            raise JournalError(f"{path} is empty: no relayer has begun to write it")
        if format_ < FORMAT:
            raise JournalError(f"the journal {path} has format {format_}: a relayer of this release converts it")
        yield connection


@contextmanager
def _locked(path: Path) -> Generator[None]:
    """Keep every other process from writing. The lock has a file of its own, and ends with the process.

    Closing a second descriptor of the journal itself would end the locks of SQLite (https://sqlite.org/howtocorrupt.html
    section 2.2).
    """
    descriptor = None
    try:
        durable.make_directory(path.parent)
        descriptor = os.open(path.with_name(f"{path.name}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # SQLite gives the files that it adds the mode of this one.
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    except OSError as error:
        if descriptor is not None:
            os.close(descriptor)
        if isinstance(error, BlockingIOError):
            raise JournalError(
                f"another relayer has the journal {path}: stop it, or give this one another `state`"
            ) from None
        raise JournalError(
            f"the journal {path} cannot be opened ({error.strerror}): `state` names its file, such as relayer.db"
        ) from error
    try:
        yield
    finally:
        os.close(descriptor)


@contextmanager
def _connected(path: Path, mode: str = "rwc") -> Generator[sqlite3.Connection]:
    try:
        connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode={mode}", uri=True, isolation_level=None)
    except sqlite3.Error as error:
        raise JournalError(f"cannot open the journal {path}: {error}") from error
    try:
        yield connection
    except sqlite3.DatabaseError as error:
        raise JournalError(f"cannot use the journal {path}: {error}") from error
    finally:
        connection.close()


def _format(connection: sqlite3.Connection, path: Path) -> int:
    """The format of the file; 0 for an empty one. Raises `JournalError` for one of another program or later format."""
    ((application,),) = connection.execute("PRAGMA application_id")
    ((version,),) = connection.execute("PRAGMA user_version")
    ((tables,),) = connection.execute("SELECT count(*) FROM sqlite_master")
    if not tables and not application and not version:
        return 0
    if application != _APPLICATION:
        raise JournalError(f"{path} is a database of another program, no journal of a relayer: choose another `state`")
    if version > FORMAT:
        raise JournalError(
            f"the journal {path} has format {version}, and this release knows formats up to {FORMAT}: a later release "
            "of Muniment wrote it. Run that release; an older one would forget what is planned"
        )
    return int(version)
