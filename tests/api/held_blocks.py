"""The blocks of an application under test, in either store: read them, damage them, remove them."""

from __future__ import annotations

import asyncio
from typing import LiteralString

from muniment.protocol.ipfs.cid import CidParts, decode_cid
from muniment.protocol.ipfs.dag import resolve, walk
from muniment.service.blocks.files import FileBlockStore
from muniment.service.context import Context


async def file_cid(context: Context, cid: str, name: str) -> CidParts:
    """The CID of a file of a bundle."""
    return (await asyncio.to_thread(resolve, context.blocks.get, decode_cid(cid), [name]))[-1]


async def cids_below(context: Context, root: CidParts) -> list[CidParts]:
    """The CIDs of the blocks that make up what `root` names, in their order."""
    return await asyncio.to_thread(lambda: [cid for cid, _ in walk(context.blocks.get, root)])


async def digests(context: Context) -> list[bytes]:
    """The digests of all blocks."""
    return await asyncio.to_thread(lambda: list(context.blocks.digests()))


async def damage(context: Context, digest: bytes) -> None:
    """Flip a bit in the middle of a stored block."""
    data = bytearray(await asyncio.to_thread(context.blocks.get, digest))
    data[len(data) // 2] ^= 1
    if isinstance(context.blocks, FileBlockStore):
        context.blocks._path(digest).write_bytes(data)
    else:
        await _execute(context, "UPDATE blocks SET data = ? WHERE digest = ?", bytes(data), digest)


async def remove(context: Context, digest: bytes) -> None:
    """Take a stored block away."""
    if isinstance(context.blocks, FileBlockStore):
        context.blocks._path(digest).unlink()
    else:
        await _execute(context, "DELETE FROM blocks WHERE digest = ?", digest)


async def _execute(context: Context, sql: LiteralString, *parameters: object) -> None:
    assert await context.database.write(lambda tx: tx.execute(sql, parameters)) == 1
