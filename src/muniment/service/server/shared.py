"""Shared state of the connections of a process: the application, and the limits over all connections."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from dataclasses import dataclass, field
from email.utils import formatdate
from typing import TYPE_CHECKING, Final, Protocol

from muniment.service.running.limits.overload import DelayedRefusals, delay_seconds, has_most, subtract
from muniment.service.server.sending import UnreadAnswers

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from muniment.protocol.errors import Refusal
    from muniment.service.http.reply import Ready, Reply
    from muniment.service.http.request import Request

# Idle time of connections; most proxies close after 60 s, so they close first.
IDLE_SECONDS_MAX: Final = 75
# Connections of one client to one process; a browser opens six, a busy relayer some dozens. An IPv6 site has four times
# as many, a quarter of a process's limit.
CONNECTIONS_PER_CLIENT_MAX: Final = 512


class Answering(Protocol):
    """The application as a connection sees it."""

    def respond(self, request: Request) -> Awaitable[Reply]:
        """The answer to a request. Raises `ClientGone`."""
        ...

    def refuse(self, refusal: Refusal, request: Request) -> Ready[object]:
        """The answer to a malformed request."""
        ...


@dataclass(slots=True, kw_only=True)
class Shared:
    """The shared state; one per serving process."""

    application: Answering
    # The time of day in seconds, for the `date` of answers.
    now_s: Callable[[], float]
    # Seconds in which a request's head must arrive.
    head_seconds_max: float
    connections_max: int
    idle_seconds_max: float = IDLE_SECONDS_MAX
    connections_per_client_max: int = CONNECTIONS_PER_CLIENT_MAX
    # Whether an address is a proxy of many clients, without the limit of one client.
    is_proxy: Callable[[str], bool] = lambda _: False
    # The names under which the connections of an address are counted: the client's and its site's.
    client_names: Callable[[str], tuple[str, ...]] = lambda peer: (peer,)
    # Numbers from 0 up to 1, so that delayed refusals do not all leave at the same moment.
    chance: Callable[[], float] = random.random
    unread: UnreadAnswers = field(default_factory=UnreadAnswers)
    delayed: DelayedRefusals = field(default_factory=DelayedRefusals)
    connections: int = 0
    _by_client: Counter[str] = field(default_factory=Counter[str])
    _date_line: bytes = b""
    _date_until: float = float("-inf")

    def admit(self, clients: tuple[str, ...], peer: str) -> bool:
        """Count a new connection of these `client_names`; False, without counting it, at a limit."""
        if self.connections >= self.connections_max:
            return False
        is_full = has_most(clients, self._by_client.__getitem__, self.connections_per_client_max)
        if is_full and not self.is_proxy(peer):
            return False
        self.connections += 1
        for name in clients:
            self._by_client[name] += 1
        return True

    def dismiss(self, clients: tuple[str, ...]) -> None:
        """Stop counting a connection, which has ended."""
        self.connections -= 1
        for name in clients:
            subtract(self._by_client, name)

    async def delay_refusal(self, request: Request, peer: str, pause_reading: Callable[[], None]) -> None:
        """Wait before a refusal of `request` is sent, with its connection unread, if the limits of delays allow it."""
        name, is_proxied = request.client.name, self.is_proxy(peer)
        if self.delayed.enter(name, is_proxied=is_proxied, connections_max=self.connections_max):
            pause_reading()
            try:
                await asyncio.sleep(delay_seconds(request.wait_s, self.chance))
            finally:
                self.delayed.leave(name, is_proxied=is_proxied)

    def date_line(self, now: float) -> bytes:
        """The `date` of an answer that leaves at the time `now` of the event loop (RFC 9110 section 6.6.1)."""
        if now >= self._date_until:
            time_of_day = self.now_s()
            self._date_line = f"date: {formatdate(time_of_day, usegmt=True)}\r\n".encode()
            self._date_until = now + 1 - time_of_day % 1
        return self._date_line


def peer_of(transport: asyncio.BaseTransport) -> str:
    """The address of a connection's peer; empty unless it is an internet socket."""
    peer: tuple[str, ...] | str | None = transport.get_extra_info("peername")  # two values for IPv4, four for IPv6
    return peer[0] if isinstance(peer, tuple) else ""
