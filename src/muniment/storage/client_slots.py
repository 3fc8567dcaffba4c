"""Allows each client one long read at a time, so that no client blocks the others; both engines use it."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager, nullcontext
from ipaddress import IPv6Address, ip_address
from typing import Final
from weakref import WeakValueDictionary

# RFC 6177 section 2: a customer has at least a /64, and can send from any address in it.
_IPV6_HOST_BITS: Final = 64


class ClientSlots:
    """A slot for each client, which exists while a read holds it or waits for it."""

    def __init__(self) -> None:
        """All slots are free."""
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def of(self, client: str) -> AbstractAsyncContextManager[None]:
        """The slot of the client at this address, as a context manager; IPv6 addresses of one /64 are one client.

        An empty address stands for the service itself, which needs no slot.
        """
        if not client:
            return nullcontext()
        network = network_of(client)
        lock = self._locks.get(network)
        if lock is None:
            lock = self._locks[network] = asyncio.Lock()
        return lock


def network_of(client: str) -> str:
    """The network of one client: an IPv4 address, or the /64 of an IPv6 address. Other text is returned unchanged."""
    try:
        address = ip_address(client)
    except ValueError:
        return client
    if not isinstance(address, IPv6Address):
        return client
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return f"{IPv6Address(int(address) >> _IPV6_HOST_BITS << _IPV6_HOST_BITS)}/64"
