"""Checks of what is stored: some blocks are hashed, and one signature is recovered. `muniment verify` checks all."""

from __future__ import annotations

import asyncio
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Final

from muniment.blocks import block_directory, is_in_s3, open_s3, place_of_blocks
from muniment.errors import ContentNotFound, Refusal, StorageUnavailable
from muniment.evm.hex import HexString
from muniment.functions.store import find_inputs
from muniment.ipfs.block import check_block
from muniment.ipfs.cid import DAG_PB, SHA2_256, CidParts
from muniment.ipfs.dag import walk
from muniment.maintenance.backup_format import block_files
from muniment.maintenance.checks import fault_of
from muniment.maintenance.doctor.daemon import in_daemon
from muniment.maintenance.doctor.findings import Finding, fail, ok
from muniment.maintenance.verifying.verify import check_trigger
from muniment.storage.sql import number_text

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from muniment.ipfs.block import GetBlock
    from muniment.settings import Settings
    from muniment.storage.database import Database, Row

# The newest: a disk that fails now has damaged them, and a volume that is not mounted lacks them.
BLOCKS_CHECKED: Final = 100
_SILENT_REMEDY: Final = "look at the server of the blocks, its bucket, and the credentials in the environment"


async def check_blocks(settings: Settings, database: Database) -> Finding:
    """Whether the blocks of the newest functions are there, and have their hashes."""
    sql = f"SELECT digest FROM functions ORDER BY seq DESC LIMIT {number_text(BLOCKS_CHECKED)}"
    repair = "run `muniment verify`; mount the volume, or upload the bundles again to repair them"
    try:
        get_block = await in_daemon(partial(_reader, settings, database, asyncio.get_running_loop()))
    except ValueError as error:
        return fail("blocks", str(error), "repair this setting: the service does not start with it")
    except StorageUnavailable as refusal:
        return fail("blocks", refusal.detail, _SILENT_REMEDY)
    try:
        digests = [bytes(digest) for (digest,) in await database.fetch(sql)]
        if not digests:
            return ok("blocks", "no function is registered")
        count = await in_daemon(partial(_hash, get_block, digests))
    except StorageUnavailable as refusal:
        return fail("blocks", refusal.detail, _SILENT_REMEDY)
    except (Refusal, OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        return fail("blocks", str(reason), repair)
    return ok("blocks", f"{count} of the newest have their hashes")


def _reader(settings: Settings, database: Database, loop: asyncio.AbstractEventLoop) -> GetBlock:
    """A reader of the service's blocks that changes nothing. A bucket is asked once, as `/readyz` does.

    Raises `ValueError` and `StorageUnavailable`.
    """
    url = place_of_blocks(settings.blocks_url, settings.database_url)
    directory = block_directory(url, settings.data_dir)
    if directory is not None:
        return block_files(directory)
    if is_in_s3(url):
        store = open_s3(url, spools=settings.data_dir)
        store.check()
        return store.get

    def get(digest: bytes) -> bytes:
        found = database.fetch_one("SELECT data FROM blocks WHERE digest = ?", (digest,))
        row = asyncio.run_coroutine_threadsafe(_awaited(found), loop).result()
        if row is None:
            raise ContentNotFound(f"block {digest.hex()} is missing")
        return check_block(digest, row[0])

    return get


async def _awaited(found: Awaitable[Row | None]) -> Row | None:
    return await found


def _hash(get_block: GetBlock, digests: list[bytes]) -> int:
    """Read blocks until `BLOCKS_CHECKED` are read; their number. Raises `Refusal` and `OSError`."""
    blocks = (block for digest in digests for block in walk(get_block, CidParts(0, DAG_PB, SHA2_256, digest)))
    return sum(1 for _ in islice(blocks, BLOCKS_CHECKED))


async def check_signature(database: Database) -> Finding:
    """Whether the newest trigger has the hash and the signer that its row says."""
    columns = "seq, sig, signer, digest, function_digest, protocol, deactivated, end_date_ms, record"
    try:
        row = await database.fetch_one(f"SELECT {columns} FROM triggers ORDER BY seq DESC LIMIT 1")
        if row is None:
            return ok("signature", "no trigger is registered")
        fault = fault_of(check_trigger, row, await find_inputs(database, row[4]) or {})
    except Refusal as refusal:
        return fail("signature", refusal.detail, "look at the database")
    if fault:
        sig = HexString.from_raw(row[1])
        return fail("signature", f"trigger {sig}: {fault}", "run `muniment verify`, and compare with a backup")
    return ok("signature", "that of the newest trigger is its owner's")
