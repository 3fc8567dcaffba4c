"""A connection on which a test controls each byte."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from typing import Self
from urllib.parse import urlsplit

# This ends a hang; nothing that is waited for takes a second on a machine that is not busy. Not with `wait_for`: that
# of Python 3.11 swallows a cancellation that comes together with a result, and the task goes on.
SECONDS_MAX = 60


@dataclass
class Answer:
    """An answer; header names are in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes


class Connection:
    """One TCP connection to a service."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def open(cls, url: str) -> Self:
        parts = urlsplit(url)
        return cls(*await asyncio.open_connection(parts.hostname, parts.port))

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        async with asyncio.timeout(SECONDS_MAX):
            await self.writer.drain()

    async def answer(self) -> Answer:
        """Read the next whole answer."""
        async with asyncio.timeout(SECONDS_MAX):
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *lines = head.rstrip().split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        async with asyncio.timeout(SECONDS_MAX):
            body = await self.reader.readexactly(int(headers.get("content-length", "0")))
        return Answer(int(first.split()[1]), headers, body)

    async def is_closed_by_server(self) -> bool:
        """Whether the server closes the connection now without further bytes."""
        with suppress(ConnectionError):
            async with asyncio.timeout(SECONDS_MAX):
                return await self.reader.read(1) == b""
        return True

    def abort(self) -> None:
        """Reset the connection (RST), like a client that crashes."""
        self.writer.transport.abort()

    async def close(self) -> None:
        self.writer.close()
        with suppress(ConnectionError):
            await self.writer.wait_closed()
