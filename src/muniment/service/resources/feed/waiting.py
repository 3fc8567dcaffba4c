"""Streams and polls that wait for events, indexed by their filters, and a lock that serves clients in rounds."""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict, defaultdict, deque
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from muniment.service.running.limits.overload import subtract

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterable, Iterator

    from muniment.service.context import Context
    from muniment.service.http.request import Request
    from muniment.service.resources.feed.events import Event, EventFilter


class Waiter:
    """A stream, or a poll, that waits for events."""

    __slots__ = ("_is_woken", "_waiter", "client", "is_ended", "wanted", "wrote_s")

    def __init__(self, wanted: EventFilter, client: tuple[str, ...], now_s: float) -> None:
        """`client` are the names that its limit counts; empty for a proxy of many clients."""
        self.wanted = wanted
        self.client = client
        # When something was last sent, by the clock of the event loop.
        self.wrote_s = now_s
        # Whether it must end, because the service stops.
        self.is_ended = False
        self._is_woken = False
        self._waiter: asyncio.Future[None] | None = None

    async def wait(self) -> None:
        """Return at the next call of `wake`, or immediately after a call since the last wait."""
        if not self._is_woken:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        self._is_woken = False

    def wake(self) -> None:
        """Let `wait` return."""
        self._is_woken = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def end(self) -> None:
        """Let it end."""
        self.is_ended = True
        self.wake()


class Waiters:
    """All waiters of a process, indexed by the values of their filters."""

    def __init__(self) -> None:
        """Begin without waiters."""
        self._groups: defaultdict[EventFilter, set[Waiter]] = defaultdict(set)
        # The filters that match only events with a certain value: an owner, an origin or a settler.
        self._by_value: defaultdict[bytes, set[EventFilter]] = defaultdict(set)
        # The other filters.
        self._broad: set[EventFilter] = set()
        self._by_client: Counter[str] = Counter()
        self.count = 0

    def __iter__(self) -> Iterator[Waiter]:
        """All waiters."""
        for group in self._groups.values():
            yield from group

    def count_of(self, name: str) -> int:
        """The number of waiters of the client, or the site, with this name."""
        return self._by_client[name]

    def add(self, waiter: Waiter) -> None:
        """Add a waiter."""
        wanted = waiter.wanted
        if wanted not in self._groups:
            if (values := _values(wanted)) is None:
                self._broad.add(wanted)
            for value in values or ():
                self._by_value[value].add(wanted)
        self._groups[wanted].add(waiter)
        self.count += 1
        self._by_client.update(waiter.client)

    def remove(self, waiter: Waiter) -> None:
        """Remove a waiter that was added."""
        wanted = waiter.wanted
        self._groups[wanted].remove(waiter)
        self.count -= 1
        for name in waiter.client:
            subtract(self._by_client, name)
        if not self._groups[wanted]:
            del self._groups[wanted]
            self._broad.discard(wanted)
            for value in _values(wanted) or ():
                self._by_value[value].remove(wanted)
                if not self._by_value[value]:
                    del self._by_value[value]

    def wanting(self, events: Iterable[Event]) -> list[Waiter]:
        """The waiters whose filters match any of `events`."""
        found: set[EventFilter] = set()
        for event in events:
            found |= {each for each in self._candidates(event) if each not in found and each.matches(event)}
        return [waiter for wanted in found for waiter in self._groups[wanted]]

    def _candidates(self, event: Event) -> set[EventFilter]:
        values = (*event.addresses, event.origin, event.settler or b"")
        return self._broad.union(*(self._by_value[value] for value in values if value in self._by_value))


class FairLock:
    """A lock that serves clients in rounds: a client with many tasks hardly delays the others."""

    def __init__(self) -> None:
        """Begin unlocked."""
        self._is_taken = False
        # By client, in the order of the round.
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()

    @asynccontextmanager
    async def held_for(self, client: str) -> AsyncGenerator[None]:
        """Hold the lock for a task of `client`; its tasks get it in their order."""
        if self._is_taken:
            await self._wait(client)
        self._is_taken = True
        try:
            yield
        finally:
            self._pass_on(client)

    async def _wait(self, client: str) -> None:
        held = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(client, deque()).append(held)
        try:
            await held
        except asyncio.CancelledError:
            if not held.cancelled():  # it got the lock at the same moment
                self._pass_on(client)
            raise

    def _pass_on(self, client: str) -> None:
        """Give the lock to the next client after `client`."""
        if client in self._waiting:
            self._waiting.move_to_end(client)
        while self._waiting:
            following, tasks = next(iter(self._waiting.items()))
            held = tasks.popleft()
            if not tasks:
                del self._waiting[following]
            if not held.done():  # else its task was cancelled
                held.set_result(None)
                return
        self._is_taken = False


def client_names(context: Context, request: Request) -> tuple[str, ...]:
    """The names of the client and its site; empty for a proxy that `trusted_proxies` lacks: it has many clients."""
    is_forwarder = request.client is not context.limiter.client(request.peer)
    return () if is_forwarder and not context.clients.has_proxies else request.client.names


def _values(wanted: EventFilter) -> frozenset[bytes] | None:
    """Values of which a matching event has one; None for a filter without values."""
    for values in (wanted.origins, wanted.owners, wanted.settlers):
        if values is not None:
            return values
    return None
