"""The followers of a process: streams and waiting polls. An event finds those that want it without asking all."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from muniment.context import Context
    from muniment.feed.events import Event
    from muniment.feed.filters import EventFilter
    from muniment.http.request import Request


class Follower:
    """One stream, or one waiting poll."""

    __slots__ = ("_is_woken", "_waiter", "client", "is_ended", "wanted", "wrote_s")

    def __init__(self, wanted: EventFilter, client: tuple[str, ...], now_s: float) -> None:
        """`client` are the names of a client that may have only so many; none: many clients share it."""
        self.wanted = wanted
        self.client = client
        # When something was last sent to it, by the clock of the event loop.
        self.wrote_s = now_s
        # Whether it has to end, because the service stops.
        self.is_ended = False
        self._is_woken = False
        self._waiter: asyncio.Future[None] | None = None

    async def wait(self) -> None:
        """Return when it is woken, or was since the last call."""
        if not self._is_woken:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        self._is_woken = False

    def wake(self) -> None:
        """Have `wait` return."""
        self._is_woken = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def end(self) -> None:
        """Have it end."""
        self.is_ended = True
        self.wake()


class Followers:
    """All followers of a process, found by the values of their filters."""

    def __init__(self) -> None:
        """Begin without followers."""
        self._groups: defaultdict[EventFilter, set[Follower]] = defaultdict(set)
        # The filters that match only events with a certain value: an owner, an origin or a settler.
        self._by_value: defaultdict[bytes, set[EventFilter]] = defaultdict(set)
        # The other filters.
        self._broad: set[EventFilter] = set()
        self._by_client: Counter[str] = Counter()
        self.count = 0

    def __iter__(self) -> Iterator[Follower]:
        """All of them."""
        for group in self._groups.values():
            yield from group

    def count_of(self, name: str) -> int:
        """How many the client, or the site, with this name has."""
        return self._by_client[name]

    def add(self, follower: Follower) -> None:
        """Add one."""
        wanted = follower.wanted
        if wanted not in self._groups:
            if (values := _values(wanted)) is None:
                self._broad.add(wanted)
            for value in values or ():
                self._by_value[value].add(wanted)
        self._groups[wanted].add(follower)
        self.count += 1
        self._by_client.update(follower.client)

    def remove(self, follower: Follower) -> None:
        """Remove one that was added."""
        wanted = follower.wanted
        self._groups[wanted].remove(follower)
        self.count -= 1
        for name in follower.client:
            self._by_client[name] -= 1
            if not self._by_client[name]:
                del self._by_client[name]
        if not self._groups[wanted]:
            del self._groups[wanted]
            self._broad.discard(wanted)
            for value in _values(wanted) or ():
                self._by_value[value].remove(wanted)
                if not self._by_value[value]:
                    del self._by_value[value]

    def wanting(self, events: Iterable[Event]) -> list[Follower]:
        """Those that want any of `events`."""
        found: set[EventFilter] = set()
        for event in events:
            found |= {each for each in self._candidates(event) if each not in found and each.matches(event)}
        return [follower for wanted in found for follower in self._groups[wanted]]

    def _candidates(self, event: Event) -> set[EventFilter]:
        values = (*event.addresses, event.origin, event.settler or b"")
        return self._broad.union(*(self._by_value[value] for value in values if value in self._by_value))


def client_names(context: Context, request: Request) -> tuple[str, ...]:
    """The names of the client and its site; none for a proxy that `trusted_proxies` lacks: it has many clients."""
    is_forwarder = request.client is not context.limiter.client(request.peer)
    return () if is_forwarder and not context.clients.has_proxies else request.client.names


def _values(wanted: EventFilter) -> frozenset[bytes] | None:
    """Values of which a matching event has one; None when the filter names none."""
    for values in (wanted.origins, wanted.owners, wanted.settlers):
        if values is not None:
            return values
    return None
