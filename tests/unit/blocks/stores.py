"""Stores of every kind, empty, and how to reach under them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, LiteralString

import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal

from muniment.service.blocks.files import FileBlockStore
from muniment.service.blocks.store import BlockStore
from muniment.service.blocks.table import TableBlockStore
from muniment.service.storage import open_database
from muniment.service.storage.database import Database

FILES = ("unnamed files", "renamed files")
TABLES = ("table on SQLite", pytest.param("table on PostgreSQL", marks=pytest.mark.programs))


@dataclass
class Kept:
    """A store, and what is under it."""

    store: BlockStore
    # The same once more, as another process would open it.
    again: Callable[[], BlockStore]
    # Puts other bytes in the place of a block's.
    damage: Callable[[bytes, bytes], None]
    # How many blocks, whole or not, there are.
    count: Callable[[], int]


@dataclass
class Table:
    """A table of blocks, and the event loop that its database is used on, which runs in a thread."""

    portal: BlockingPortal
    database: Database
    spools: Path

    def store(self) -> TableBlockStore:
        loop = self.portal.call(asyncio.get_running_loop)
        # Listings have more digests than one read.
        return TableBlockStore(self.database, loop, spools=self.spools, digests_per_read=7)

    def execute(self, sql: LiteralString, *parameters: object) -> int:
        """How many rows a statement changed."""
        return self.portal.call(self.database.write, lambda tx: tx.execute(sql, parameters))

    def fetch(self, sql: LiteralString, *parameters: object) -> list[Any]:
        return self.portal.call(self.database.fetch, sql, parameters)

    def damage(self, digest: bytes, data: bytes) -> None:
        assert self.execute("UPDATE blocks SET data = ? WHERE digest = ?", data, digest) == 1

    def count(self) -> int:
        return self.fetch("SELECT count(*) FROM blocks")[0][0]


@contextmanager
def opened_table(request: pytest.FixtureRequest, directory: Path) -> Generator[Table]:
    """The kind that the fixture's parameter names."""
    on_sqlite = request.param == "table on SQLite"
    url = "sqlite:///blocks.db" if on_sqlite else str(request.getfixturevalue("postgres_url"))
    with start_blocking_portal() as portal:
        database = portal.call(partial(open_database, url, data_dir=directory))
        try:
            portal.call(database.migrate)
            yield Table(portal, database, directory / "spools")
        finally:
            portal.call(database.close)


@contextmanager
def opened(request: pytest.FixtureRequest, directory: Path) -> Generator[Kept]:
    """The kind that the fixture's parameter names."""
    if request.param in FILES:
        yield _files(directory / "blocks", is_unnamed=request.param == "unnamed files")
        return
    with opened_table(request, directory) as table:
        yield Kept(table.store(), table.store, table.damage, table.count)


def _files(root: Path, *, is_unnamed: bool) -> Kept:
    store = FileBlockStore(root)
    store._links_unnamed = is_unnamed

    def damage(digest: bytes, data: bytes) -> None:
        path = root / digest.hex()[:2] / digest.hex()[2:]
        assert path.exists()
        path.write_bytes(data)

    def count() -> int:
        return len([path for path in root.rglob("*") if path.is_file()])

    return Kept(store, lambda: FileBlockStore(root), damage, count)
