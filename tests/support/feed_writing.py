"""Add many events to the feed, as another process."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import asyncpg

# Numbers of rows repeat after 65,536 rows of one transaction (PostgreSQL).
ROWS_AT_ONCE = 50_000
# The creator of a function; kind 3 is `function.created`.
OWNER = bytes(19) + b"\x07"
_INSERT = "INSERT INTO events (at_ms, kind, subject, owners, origin, facts) VALUES "


async def add_events(data_dir: Path, database_url: str, count: int, owner: bytes = OWNER) -> None:
    """Add so many events to the database of a service; an empty URL is its SQLite file.

    In one transaction, or in several of `ROWS_AT_ONCE` on PostgreSQL.
    """
    rows = [(1_795_204_080_123, 3, number.to_bytes(32), owner, number.to_bytes(32), "{}") for number in range(count)]
    if not database_url:
        with closing(sqlite3.connect(data_dir / "muniment.db", timeout=60)) as database, database:
            database.executemany(f"{_INSERT}(?, ?, ?, ?, ?, ?)", rows)
        return
    driver: Any = asyncpg
    connection = await driver.connect(database_url)
    for at in range(0, count, ROWS_AT_ONCE):
        async with connection.transaction():
            await connection.executemany(f"{_INSERT}($1, $2, $3, $4, $5, $6)", rows[at : at + ROWS_AT_ONCE])
    await connection.close()


async def execute_all(data_dir: Path, database_url: str, statements: list[str]) -> None:
    """Run statements in one transaction of the same database."""
    if not database_url:
        with closing(sqlite3.connect(data_dir / "muniment.db", timeout=60)) as database, database:
            for statement in statements:
                database.execute(statement)
        return
    driver: Any = asyncpg
    connection = await driver.connect(database_url)
    async with connection.transaction():
        for statement in statements:
            await connection.execute(statement)
    await connection.close()
