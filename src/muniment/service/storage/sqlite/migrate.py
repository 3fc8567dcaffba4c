"""Applies migrations on SQLite, in one process while the others wait; `engine` calls it."""

from __future__ import annotations

import sqlite3
import time
from typing import Final

from muniment.service.storage.migrate import LEDGER, migrations, missing

# How long a process waits for the migrations of another process, which may build an index over every row.
MIGRATION_TIMEOUT_MS: Final = 60_000


def migrate(connection: sqlite3.Connection) -> list[str]:
    """Apply the missing migrations under the write lock; their names. Raises `sqlite3.Error`."""
    connection.execute(f"PRAGMA busy_timeout={MIGRATION_TIMEOUT_MS}")
    connection.execute("BEGIN IMMEDIATE")
    return _apply_missing(connection)


def _apply_missing(connection: sqlite3.Connection) -> list[str]:
    """Apply the missing migrations and commit. After an error the caller closes the connection, which undoes them."""
    connection.execute(LEDGER)
    applied = dict(connection.execute("SELECT name, sha256 FROM schema_migrations").fetchall())
    pending = missing(migrations("sqlite"), applied)
    for migration in pending:
        for statement in _statements(migration.sql):
            connection.execute(statement)
        connection.execute(
            "INSERT INTO schema_migrations (name, sha256, applied_at_ms) VALUES (?, ?, ?)",
            (migration.name, migration.sha256, time.time_ns() // 1_000_000),
        )
    connection.execute("COMMIT")
    return [migration.name for migration in pending]


def _statements(script: str) -> list[str]:
    """The statements of a script one by one; `executescript` would commit the open transaction first."""
    found: list[str] = []
    pending = ""
    for line in script.splitlines(keepends=True):
        pending += line
        if sqlite3.complete_statement(pending):
            found.append(pending)
            pending = ""
    return [*found, pending] if pending.strip() else found
