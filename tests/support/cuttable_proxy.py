"""A proxy that can cut the network: no byte passes, and connections stay open."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

_PIECE_BYTES = 65_536


class CuttableProxy:
    """Pass bytes to one port of this machine. `cut` holds them back until `heal`."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._whole = asyncio.Event()
        self._whole.set()
        self._tasks: set[asyncio.Task[None]] = set()

    def cut(self) -> None:
        self._whole.clear()

    def heal(self) -> None:
        self._whole.set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        ends = [writer]
        with suppress(asyncio.CancelledError, OSError):
            await self._whole.wait()
            behind, ahead = await asyncio.open_connection("127.0.0.1", self._port)
            ends.append(ahead)
            await asyncio.gather(self._pass_on(reader, ahead), self._pass_on(behind, writer))
        for each in ends:
            each.close()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while piece := await reader.read(_PIECE_BYTES):
                await self._whole.wait()
                writer.write(piece)
                await writer.drain()
        await self._whole.wait()
        writer.close()

    async def close(self) -> None:
        self.heal()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@asynccontextmanager
async def cuttable_proxy(port: int, to: int) -> AsyncGenerator[CuttableProxy]:
    """A proxy that listens on `port` of this machine and leads `to` another one."""
    proxy = CuttableProxy(to)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", port)
    try:
        yield proxy
    finally:
        server.close()
        await proxy.close()
