"""A proxy that rewrites the bytes of clients: for faults of intermediaries, such as poolers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress

_PIECE_BYTES = 65_536


@asynccontextmanager
async def rewriting_proxy(port: int, rewrite: Callable[[bytes], bytes]) -> AsyncGenerator[int]:
    """Port of a proxy to `port` of this machine. `rewrite` gets each piece of bytes of a client."""
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        behind, ahead = await asyncio.open_connection("127.0.0.1", port)
        with suppress(asyncio.CancelledError, ConnectionError):
            await asyncio.gather(_pass_on(reader, ahead, rewrite), _pass_on(behind, writer, lambda piece: piece))
        for each in (ahead, writer):
            each.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _pass_on(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, rewrite: Callable[[bytes], bytes]
) -> None:
    while piece := await reader.read(_PIECE_BYTES):
        writer.write(rewrite(piece))
        await writer.drain()
    writer.close()
