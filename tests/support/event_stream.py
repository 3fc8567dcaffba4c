"""A client of GET /events/stream that returns every block, also those that an EventSource hides."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Self
from urllib.parse import urlsplit

# This ends a hang.
SECONDS_MAX = 60


@dataclass(frozen=True)
class Block:
    """The fields between two empty lines; a comment has the name ''."""

    fields: Mapping[str, str]

    @property
    def id(self) -> str:
        return self.fields.get("id", "")

    @property
    def data(self) -> Any:
        """The event; None for a block without one."""
        return json.loads(self.fields["data"]) if "data" in self.fields else None

    @property
    def retry_ms(self) -> int:
        return int(self.fields["retry"])


class EventStream:
    """One stream, on a connection of its own."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.status = 0
        self.headers: dict[str, str] = {}

    @classmethod
    async def open(
        cls,
        url: str,
        query: str = "",
        *,
        after: str = "",
        address: str = "127.0.0.1",
        receive_bytes: int = 0,
        fields: str = "",
    ) -> Self:
        """Request a stream and read its head.

        `after` is the last id; `address` is that of the client; `fields` are further header lines. The kernel holds
        `receive_bytes` that the client has not read; 0: its default.
        """
        where = urlsplit(url)
        connection = socket.socket()
        if receive_bytes:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        connection.setblocking(False)
        connection.bind((address, 0))
        await asyncio.get_running_loop().sock_connect(connection, (where.hostname or "", where.port or 0))
        stream = cls(*await asyncio.open_connection(sock=connection, limit=2**20))
        last = f"last-event-id: {after}\r\n" if after else ""
        target = f"/events/stream?{query}" if query else "/events/stream"
        stream.writer.write(f"GET {target} HTTP/1.1\r\nhost: test\r\n{last}{fields}\r\n".encode())
        async with asyncio.timeout(SECONDS_MAX):
            head = (await stream.reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *lines = head.rstrip().split("\r\n")
        stream.status = int(first.split()[1])
        stream.headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        return stream

    async def block(self, seconds: float = SECONDS_MAX) -> Block:
        """The next block. Raises `EOFError` at the end of the stream."""
        async with asyncio.timeout(seconds):
            while True:
                # A chunk has whole blocks, and its lines are hex digits: no field begins with them and a line end.
                line = await self.reader.readline()
                if line.strip() in (b"", b"0"):
                    if not line or line.strip() == b"0":
                        raise EOFError
                    continue
                if b":" in line:
                    return await self._block_from(line)

    async def _block_from(self, line: bytes) -> Block:
        fields: dict[str, str] = {}
        while line != b"\n":
            name, _, value = line.decode().rstrip("\n").partition(":")
            fields[name] = value.removeprefix(" ")
            line = await self.reader.readline()
            if not line:
                raise EOFError
        return Block(fields)

    async def event(self, seconds: float = SECONDS_MAX) -> Block:
        """The next block with data."""
        async with asyncio.timeout(seconds):
            while (block := await self.block()).data is None:
                pass
        return block

    async def rest(self, seconds: float = SECONDS_MAX) -> list[Block]:
        """All blocks up to the end."""
        found: list[Block] = []
        async with asyncio.timeout(seconds):
            with suppress(EOFError):
                while True:
                    found.append(await self.block())
        return found

    async def close(self) -> None:
        self.writer.close()
        with suppress(ConnectionError):
            await self.writer.wait_closed()
