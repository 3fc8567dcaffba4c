"""Connections to addresses that were checked.

A name is resolved where its connection is opened, every address it has is checked, and the connection goes to an
address that was checked: a name that later points inward (DNS rebinding) changes nothing.

The system's resolver has no time limit that a caller can set: a name whose server is silent holds a thread for some ten
seconds. A client with threads of its own leaves those that others use alone.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final, cast

import httpcore2

from muniment.outgoing.addresses import IPAddress, is_public
from muniment.outgoing.answers import Unreachable
from muniment.outgoing.streams import BoundedStream

# The wait for addresses, by a client with threads of its own.
LOOKUP_SECONDS_MAX: Final = 5.0


class CheckedConnections(httpcore2.AsyncNetworkBackend):
    """Opens connections to addresses that were checked."""

    def __init__(self, *, allow_private: bool, lookup_threads: int) -> None:
        """The arguments are those of `Outgoing`."""
        self._allow_private = allow_private
        # Threads are made when they are used. One that waits for a resolver cannot be stopped.
        self._threads = ThreadPoolExecutor(lookup_threads, "look-up") if lookup_threads else None
        # httpcore2 types it by whether anyio is installed, which it is here.
        self._connections = cast("httpcore2.AsyncNetworkBackend", httpcore2.AnyIOBackend())

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - the signature is httpcore2's
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        """A connection to the first address of `host` that answers. Raises `Unreachable`, httpcore2's errors."""
        refused: Exception = Unreachable("unknown-host")
        for address in await self._resolve(host, port):
            try:
                return BoundedStream(
                    await self._connections.connect_tcp(
                        str(address), port, timeout=timeout, local_address=local_address, socket_options=socket_options
                    )
                )
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
                refused = error
        raise refused

    def close(self) -> None:
        """Start no more look-ups."""
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)

    async def sleep(self, seconds: float) -> None:
        """Between retries of httpcore, which are off."""
        await asyncio.sleep(seconds)

    async def _resolve(self, host: str, port: int) -> list[IPAddress]:
        """Raises `Unreachable` for a host without an address, or with any forbidden address."""
        try:
            entries = await self._look_up(host, port)
        except (OSError, UnicodeError):  # also TimeoutError; UnicodeError: a label that is too long for a name
            raise Unreachable("unknown-host") from None
        texts = dict.fromkeys(str(entry[4][0]).partition("%")[0] for entry in entries)
        addresses = [ipaddress.ip_address(text) for text in texts]
        if not self._allow_private and not all(is_public(address) for address in addresses):
            raise Unreachable("forbidden-address", "the host has a private, loopback or link-local address")
        return addresses

    async def _look_up(self, host: str, port: int) -> list[Any]:
        """The answer of `getaddrinfo`. Raises `OSError`, `UnicodeError`."""
        loop = asyncio.get_running_loop()
        if self._threads is None:
            return await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        look_up = partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
        async with asyncio.timeout(LOOKUP_SECONDS_MAX):
            return await loop.run_in_executor(self._threads, look_up)
