"""Blocks in a table of the service's own database, so that all processes on all machines share them.

The database is asynchronous and belongs to an event loop; threads call the store. A thread passes its statement to that
loop and waits. So code on the loop must never call the store: the loop would wait for itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Iterator
from concurrent.futures import CancelledError
from typing import TYPE_CHECKING, Any, Final, LiteralString, TypeVar

from muniment import durable
from muniment.protocol.errors import ContentNotFound, StorageUnavailable, Unavailable
from muniment.protocol.ipfs.block import BLOCK_SIZE_MAX, check_block
from muniment.service.blocks.store import Spool, disk_failures

if TYPE_CHECKING:
    from pathlib import Path

    from muniment.service.storage.database import Database, Row, Transaction

T = TypeVar("T")

# Bytes in one transaction, unless a single block has more. Small transactions let other writers in.
BATCH_BYTES_MAX: Final = 1024 * 1024
# Blocks in one transaction: each takes a statement of some tenths of a millisecond.
BATCH_BLOCKS_MAX: Final = 200
# Digests in one statement of a listing: 32 KiB.
DIGESTS_PER_READ: Final = 1_000
# Longer than every time limit of the engines: only a blocked event loop takes longer.
ANSWER_SECONDS_MAX: Final = 30.0

# A row with these bytes stays as it is. `INSERT … DO NOTHING` would be simpler, but would not repair a damaged row.
_PUT: Final = """INSERT INTO blocks (digest, data) VALUES (?, ?)
    ON CONFLICT (digest) DO UPDATE SET data = excluded.data WHERE blocks.data <> excluded.data"""


class TableBlockStore:
    """A `BlockStore` in the table `blocks`, which migrations make."""

    def __init__(
        self,
        database: Database,
        loop: asyncio.AbstractEventLoop | None,
        *,
        spools: Path,
        answer_seconds_max: float = ANSWER_SECONDS_MAX,
        digests_per_read: int = DIGESTS_PER_READ,
    ) -> None:
        """`loop` is the event loop of `database`; without it, the store cannot read or write.

        Uploads wait in the directory `spools`, which is made if it does not exist. Raises `StorageUnavailable`.
        """
        self._database = database
        self._loop = loop
        self._spools = spools
        self._answer_seconds_max = answer_seconds_max
        self._digests_per_read = digests_per_read
        with disk_failures():
            spools.mkdir(parents=True, exist_ok=True)

    def put_many(self, blocks: Iterable[tuple[bytes, bytes]]) -> None:
        """Store pairs of digest and bytes, which must belong together; durable when this returns."""
        batch: dict[bytes, bytes] = {}
        size = 0
        for digest, data in blocks:
            if len(data) > BLOCK_SIZE_MAX:
                raise ValueError(f"a block has at most {BLOCK_SIZE_MAX} bytes")
            if size + len(data) > BATCH_BYTES_MAX or len(batch) == BATCH_BLOCKS_MAX:
                self._put(batch)
                batch, size = {}, 0
            batch[digest] = data
            size += len(data)
        self._put(batch)

    def get(self, digest: bytes) -> bytes:
        """The bytes of a block, hashed anew; raises `ContentNotFound`, or `Integrity` when they are damaged."""
        (data,) = self._row("SELECT data FROM blocks WHERE digest = ?", digest)
        return check_block(digest, data)

    def size(self, digest: bytes) -> int:
        """The length in bytes of a block, which is not read; raises `ContentNotFound`."""
        (size,) = self._row("SELECT length(data) FROM blocks WHERE digest = ?", digest)
        return size

    def has(self, digest: bytes) -> bool:
        """Whether the store has a block. Its bytes are not read."""
        return bool(self._fetch("SELECT 1 FROM blocks WHERE digest = ?", digest))

    def digests(self) -> Iterator[bytes]:
        """The digests of all blocks in ascending order; blocks that are added or removed meanwhile may be missing."""
        last = b""
        while rows := self._fetch(
            "SELECT digest FROM blocks WHERE digest > ? ORDER BY digest LIMIT ?", last, self._digests_per_read
        ):
            for (last,) in rows:
                yield last

    def check(self) -> None:
        """Return if the local disk can take uploads; the database has its own check."""
        with disk_failures():
            durable.prove_writing(self._spools)

    def open_spool(self) -> Spool:
        """A place for an upload: in memory while it is small, then a nameless file on this machine."""
        return Spool(self._spools)

    def _put(self, batch: dict[bytes, bytes]) -> None:
        # Sorted, so that two writers of the same blocks wait for each other without a deadlock.
        rows = sorted(batch.items())

        async def put(tx: Transaction) -> None:
            for row in rows:
                await tx.execute(_PUT, row)

        if rows:
            self._wait(lambda: self._database.write(put))

    def _row(self, sql: LiteralString, digest: bytes) -> Row:
        rows = self._fetch(sql, digest)
        if not rows:
            raise ContentNotFound(f"block {digest.hex()} is not held here")
        return rows[0]

    def _fetch(self, sql: LiteralString, *parameters: object) -> list[Row]:
        return self._wait(lambda: self._database.fetch(sql, parameters))

    def _wait(self, ask: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """The result of `ask` on the database's loop. Raises `StorageUnavailable` when it fails or takes too long."""
        loop = self._loop
        if loop is None:
            raise RuntimeError("this block store was made without an event loop, so it cannot use its database")
        if _runs_a_loop():
            raise RuntimeError("call a block store in a thread: here the event loop would wait for itself")
        coroutine = ask()
        try:
            future = asyncio.run_coroutine_threadsafe(coroutine, loop)
        except RuntimeError as error:  # the loop is closed
            coroutine.close()
            raise StorageUnavailable("the block store is closed") from error
        try:
            return future.result(self._answer_seconds_max)
        except Unavailable as refusal:
            raise StorageUnavailable(f"the block store does not answer: {refusal.detail}") from refusal
        except (TimeoutError, CancelledError) as error:
            future.cancel()
            raise StorageUnavailable("the block store does not answer") from error


def _runs_a_loop() -> bool:
    """Whether this thread is that of an event loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
