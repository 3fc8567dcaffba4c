"""Databases that another revision made: by another `0001_initial.sql`, with rows."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Literal

import asyncpg

from muniment.service.auth.secrets import RingFile
from muniment.service.blocks.files import FileBlockStore
from muniment.service.storage.migrate import LEDGER, Migration, migrations
from postgres import Cluster

# How the service of the other revision ended: in order; or by a kill, before or after SQLite copied its log into the
# database for the first time.
End = Literal["stopped", "killed early", "killed late"]
_ROW = "INSERT INTO operators (name, key_hash, created_at_ms) VALUES ('relayer-1', {}, 1)"


def other_initial(engine: str) -> Migration:
    """The first migration of another revision: it makes a table more."""
    first = migrations(engine)[0]
    return Migration(first.name, f"{first.sql}\nCREATE TABLE other (a text PRIMARY KEY);\n")


def other_directory(directory: Path, end: End = "stopped") -> None:
    """Make the data directory of a registry on SQLite that another revision made, with its secrets and blocks."""
    directory.mkdir(mode=0o700, parents=True)
    RingFile(directory)()
    FileBlockStore(directory / "blocks")
    made = directory / "made.db"
    first = other_initial("sqlite")
    with closing(sqlite3.connect(made, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.executescript(f"{LEDGER};{first.sql}")
        connection.execute("INSERT INTO schema_migrations VALUES (?, ?, 1)", (first.name, first.sha256))
        if end == "killed late":
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        connection.execute(_ROW.format("zeroblob(32)"))
        if end != "stopped":  # a copy of the files now is what a kill leaves
            for path in directory.glob("made.db*"):
                shutil.copy2(path, path.with_name(path.name.replace("made", "muniment")))
    if end == "stopped":
        made.rename(directory / "muniment.db")
    for path in directory.glob("made.db*"):
        path.unlink()


async def other_database(cluster: Cluster, name: str) -> str:
    """The URL of a PostgreSQL database that another revision made."""
    url, first = await cluster.create_database(name), other_initial("postgres")
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(f"{LEDGER};{first.sql}")
        await connection.execute("INSERT INTO schema_migrations VALUES ($1, $2, 1)", first.name, first.sha256)
        await connection.execute(_ROW.format("decode(repeat('00', 32), 'hex')"))
    finally:
        await connection.close()
    return url
