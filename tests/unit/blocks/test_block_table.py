"""Blocks in a table: from threads only, in transactions of bounded size, and a database that does not answer."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from stores import TABLES, Table, opened_table

from muniment.protocol.errors import DatabaseUnavailable, DeadlineExceeded, StorageUnavailable
from muniment.protocol.ipfs.block import BLOCK_SIZE_MAX, block_of
from muniment.service.blocks import table as table_module
from muniment.service.blocks.store import SPOOL_MEMORY_MAX, BlockStore
from muniment.service.blocks.table import BATCH_BLOCKS_MAX, BATCH_BYTES_MAX, TableBlockStore

HELLO = block_of(b"hello")
USES: dict[str, Callable[[BlockStore], object]] = {
    "put_many": lambda store: store.put_many([HELLO]),
    "get": lambda store: store.get(HELLO.digest),
    "size": lambda store: store.size(HELLO.digest),
    "has": lambda store: store.has(HELLO.digest),
    "digests": lambda store: list(store.digests()),
}
every_use = pytest.mark.parametrize("use", USES.values(), ids=USES)


@pytest.fixture(params=TABLES)
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Table]:
    with opened_table(request, tmp_path) as made:
        yield made


class Database:
    """Notes the transactions that are asked for, or fails."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error
        self.written: list[list[tuple[bytes, bytes]]] = []

    async def fetch(self, *_: object) -> list[Any]:
        if self.error is not None:
            raise self.error
        return []

    async def write(self, work: Callable[[Any], Any]) -> None:
        if self.error is not None:
            raise self.error
        self.written.append([])
        await work(self)

    async def execute(self, _: str, row: tuple[bytes, bytes]) -> int:
        self.written[-1].append(row)
        return 1


def used_in_a_thread(database: Any, tmp_path: Path, use: Callable[[BlockStore], object]) -> None:
    """Use a store over `database`, whose loop runs here."""

    async def run() -> None:
        store = TableBlockStore(database, asyncio.get_running_loop(), spools=tmp_path / "spools")
        await asyncio.to_thread(use, store)

    asyncio.run(run())


@every_use
async def test_a_call_on_the_event_loop_itself_is_refused(tmp_path: Path, use: Callable[[BlockStore], object]) -> None:
    database: Any = Database()
    store = TableBlockStore(database, asyncio.get_running_loop(), spools=tmp_path)
    with pytest.raises(RuntimeError, match="wait for itself"):
        use(store)
    assert database.written == []


@every_use
def test_a_store_that_was_made_without_a_loop_is_refused(tmp_path: Path, use: Callable[[BlockStore], object]) -> None:
    database: Any = Database()
    with pytest.raises(RuntimeError, match="without an event loop"):
        use(TableBlockStore(database, None, spools=tmp_path))


@every_use
def test_a_store_whose_loop_has_ended_is_unavailable(tmp_path: Path, use: Callable[[BlockStore], object]) -> None:
    database: Any = Database()
    loop = asyncio.new_event_loop()
    loop.close()
    with pytest.raises(StorageUnavailable, match="is closed"):
        use(TableBlockStore(database, loop, spools=tmp_path))


@every_use
@pytest.mark.parametrize("error", [DatabaseUnavailable("it is full"), DeadlineExceeded("it is full")], ids=repr)
def test_a_database_that_fails_is_storage_unavailable(
    tmp_path: Path, use: Callable[[BlockStore], object], error: Exception
) -> None:
    with pytest.raises(StorageUnavailable, match="it is full"):
        used_in_a_thread(Database(error), tmp_path, use)


@every_use
def test_a_blocked_loop_is_waited_for_within_the_time_limit(
    tmp_path: Path, use: Callable[[BlockStore], object]
) -> None:
    database: Any = Database()
    loop = asyncio.new_event_loop()  # never runs
    try:
        started = time.monotonic()
        with pytest.raises(StorageUnavailable, match="does not answer"):
            use(TableBlockStore(database, loop, spools=tmp_path, answer_seconds_max=0.05))
        assert time.monotonic() - started < 30
        loop.run_until_complete(asyncio.sleep(0.01))  # a late put does no harm
    finally:
        loop.close()


def test_a_put_returns_only_after_the_commit(tmp_path: Path) -> None:
    committed, returned = asyncio.Event(), threading.Event()

    class Slow(Database):
        async def write(self, work: Callable[[Any], Any]) -> None:
            await super().write(work)
            await committed.wait()

    async def run() -> None:
        database: Any = Slow()
        store = TableBlockStore(database, asyncio.get_running_loop(), spools=tmp_path)
        putting = asyncio.create_task(asyncio.to_thread(lambda: (store.put_many([HELLO]), returned.set())))
        async with asyncio.timeout(60):
            while not database.written:
                await asyncio.sleep(0.01)
        assert database.written == [[HELLO]]
        assert not returned.is_set()
        committed.set()
        await putting
        assert returned.is_set()

    asyncio.run(run())


@pytest.mark.parametrize(
    ("size", "count", "most"),
    [
        pytest.param(10, 1000, BATCH_BLOCKS_MAX, id="small"),
        pytest.param(256 * 1024, 20, 4, id="chunks"),
        pytest.param(BATCH_BYTES_MAX + 1, 3, 1, id="beyond a batch"),
        pytest.param(BLOCK_SIZE_MAX, 3, 1, id="largest"),
    ],
)
def test_a_transaction_has_few_bytes_and_blocks_in_one_order(tmp_path: Path, size: int, count: int, most: int) -> None:
    database = Database()
    blocks = [block_of(number.to_bytes(4, "big") + bytes(size - 4)) for number in range(count)]
    used_in_a_thread(database, tmp_path, lambda store: store.put_many(blocks))
    assert all(rows == sorted(rows) for rows in database.written)
    assert sorted(row for rows in database.written for row in rows) == sorted(blocks)
    assert max(len(rows) for rows in database.written) == most
    assert min(len(rows) for rows in database.written[:-1]) == most


def test_a_sound_row_is_not_written_again(table: Table) -> None:
    store = table.store()
    store.put_many([HELLO])
    assert table.execute(table_module._PUT, *HELLO) == 0
    table.damage(HELLO.digest, b"hellp")
    assert table.execute(table_module._PUT, *HELLO) == 1
    assert store.get(HELLO.digest) == b"hello"


@pytest.mark.parametrize(
    "row", [(HELLO.digest[:-1], b"hello"), (HELLO.digest, bytes(BLOCK_SIZE_MAX + 1))], ids=["digest", "data"]
)
def test_the_table_itself_refuses_other_rows_than_blocks(table: Table, row: tuple[bytes, bytes]) -> None:
    with pytest.raises(Exception, match=r"(?i)constraint"):
        table.execute("INSERT INTO blocks (digest, data) VALUES (?, ?)", *row)
    assert table.count() == 0


def test_an_upload_waits_in_a_file_without_a_name_on_this_machine(tmp_path: Path) -> None:
    database: Any = Database()
    store = TableBlockStore(database, None, spools=tmp_path / "data" / "spools")
    with store.open_spool() as spool:
        spool.write(bytes(SPOOL_MEMORY_MAX + 1))
        links = [path.readlink() for path in Path("/proc/self/fd").iterdir() if path.is_symlink()]
        assert [link for link in links if str(tmp_path / "data" / "spools") in str(link)]
    assert list((tmp_path / "data" / "spools").iterdir()) == []


def test_a_directory_for_uploads_that_cannot_be_made_is_storage_unavailable(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    database: Any = Database()
    with pytest.raises(StorageUnavailable):
        TableBlockStore(database, None, spools=tmp_path / "file" / "spools")
