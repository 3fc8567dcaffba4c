"""Allows each client one long read at a time, so that no client blocks the others; both engines use it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from ipaddress import IPv6Address, ip_address
from typing import Final, TypeVar
from weakref import WeakValueDictionary

T = TypeVar("T")

# RFC 6177 section 2: a customer has at least a /64, and can send from any address in it.
_IPV6_HOST_BITS: Final = 64


def _owe_nothing(_client: str, _nanoseconds: int) -> None:
    pass


class ClientSlots:
    """A slot for each client, which exists while a read holds it or waits for it."""

    def __init__(self) -> None:
        """All slots are free, and no client is charged."""
        # Called on the event loop, at the end of each read for a client, with its address and the time that it took.
        self.owe: Callable[[str, int], object] = _owe_nothing
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

    def charged(self, client: str, loop: asyncio.AbstractEventLoop, read: Callable[[], T]) -> T:
        """The result of `read` in this thread; reports its CPU time to `owe` on the event loop."""
        begun = time.thread_time_ns()
        try:
            return read()
        finally:
            if client:
                with suppress(RuntimeError):  # the loop has ended
                    loop.call_soon_threadsafe(self.owe, client, time.thread_time_ns() - begun)


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
