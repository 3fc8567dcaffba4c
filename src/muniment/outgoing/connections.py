"""Connections to addresses that were checked.

A name is resolved where its connection is opened, every address it has is checked, and the connection goes to an
address that was checked: a name that later points inward (DNS rebinding) changes nothing.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Iterable
from typing import Any, cast

import httpcore2

from muniment.outgoing.addresses import IPAddress, is_public
from muniment.outgoing.answers import Unreachable
from muniment.outgoing.lookups import StrangersLookups, addresses_of
from muniment.outgoing.streams import BoundedStream


class CheckedConnections(httpcore2.AsyncNetworkBackend):
    """Opens connections to addresses that were checked."""

    def __init__(self, *, allow_private: bool, lookups: StrangersLookups | None = None) -> None:
        self._allow_private = allow_private
        self._lookups = lookups
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

    async def sleep(self, seconds: float) -> None:
        """Between retries of httpcore, which are off."""
        await asyncio.sleep(seconds)

    async def _resolve(self, host: str, port: int) -> list[IPAddress]:
        """Raises `Unreachable` for a host without an address, or with any forbidden address."""
        try:
            found = await (self._lookups.find(host, port) if self._lookups else _found_by_loop(host, port))
        except (OSError, UnicodeError):  # UnicodeError: a label that is too long for a name
            raise Unreachable("unknown-host") from None
        addresses = [ipaddress.ip_address(each) for each in found]
        if not self._allow_private and not all(is_public(address) for address in addresses):
            raise Unreachable("forbidden-address", "the host has a private, loopback or link-local address")
        return addresses


async def _found_by_loop(host: str, port: int) -> list[str]:
    """The addresses of a host that an operator named. Raises `OSError`, `UnicodeError`."""
    return addresses_of(await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM))
