"""A proxy that rewrites the bytes of clients: for faults of intermediaries, such as poolers."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit

_PIECE_BYTES = 65_536


@asynccontextmanager
async def rewriting_proxy(url: str, rewrite: Callable[[bytes], bytes]) -> AsyncGenerator[str]:
    """`url` through a proxy, of a server of this machine. `rewrite` gets each piece of bytes of a client."""
    port = urlsplit(url).port
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
        yield url.replace(f":{port}/", f":{server.sockets[0].getsockname()[1]}/")
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def as_behind_a_pooler(piece: bytes) -> bytes:
    """Let the number of the session's process differ from the one that the server sent, as behind any pooler."""
    return piece.replace(b"pg_backend_pid() = ", b"pg_backend_pid() <>")


def as_in_transaction_mode(piece: bytes) -> bytes:
    """Let a setting of the session end with its transaction too, as behind a pooler that mixes sessions."""
    piece = re.sub(rb"('muniment\.session', '[0-9a-f]+'), false\)", rb"\1, true )", piece)
    return as_behind_a_pooler(piece)


async def _pass_on(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, rewrite: Callable[[bytes], bytes]
) -> None:
    while piece := await reader.read(_PIECE_BYTES):
        writer.write(rewrite(piece))
        await writer.drain()
    writer.close()
