"""Connections to addresses that were checked.

A name is resolved where its connection is opened, every address it has is checked, and the connection goes to an
address that was checked: a name that later points inward (DNS rebinding) changes nothing.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Hashable, Iterable
from contextvars import ContextVar
from typing import Any, Final, NamedTuple, cast

import httpcore2

from muniment.outgoing.answers import Unreachable
from muniment.outgoing.lookups import Lookups, addresses_of
from muniment.outgoing.streams import BoundedStream

_NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")  # a translator sends it on to IPv4 (RFC 6052 section 2.1)
# Blocks that Python's releases differ on, or take for global: protocol assignments (RFC 6890, 2928), translation (RFC
# 8215, 2765), documentation (9637), site-local (3879), segments (9602), IPv4 in IPv6 (4291 section 2.5.5.1).
_SPECIAL: Final = tuple(map(ipaddress.ip_network, (
    "192.0.0.0/24", "2001::/23", "64:ff9b:1::/48", "::ffff:0:0:0/96", "3fff::/20", "fec0::/10", "5f00::/16", "::/96",
)))  # fmt: skip
_IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address


def is_public(address: _IPAddress) -> bool:
    """Whether a request may go to `address`: not private, loopback, link-local, multicast, or a disguise of one."""
    if isinstance(address, ipaddress.IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour
        if inner is None and address in _NAT64:
            inner = ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)
        if inner is not None:
            return is_public(inner)
    return address.is_global and not address.is_multicast and not any(address in block for block in _SPECIAL)


class OnBehalf(NamedTuple):
    """For whom a request goes to a name that a stranger chose: look-ups are bounded for each `asker`.

    `is_trial`: perhaps the first request to this name. Trials have look-ups of their own.
    """

    asker: Hashable
    is_trial: bool = False


ANYBODY: Final = OnBehalf(None)
# The asker of this task's request, as context: the library that opens connections has no parameter for it.
on_behalf: Final[ContextVar[OnBehalf]] = ContextVar("on_behalf", default=ANYBODY)


class StrangersLookups(NamedTuple):
    """The look-ups of names that strangers chose."""

    usual: Lookups
    trials: Lookups

    async def find(self, host: str, port: int) -> list[str]:
        """The addresses of `host`. Raises `Unreachable`."""
        whose = on_behalf.get()
        return await (self.trials if whose.is_trial else self.usual).find(host, port, whose.asker)

    def close(self) -> None:
        """Start no more look-ups."""
        self.usual.close()
        self.trials.close()


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

    async def _resolve(self, host: str, port: int) -> list[_IPAddress]:
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
