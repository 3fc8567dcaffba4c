"""Bounds on the concurrent work of one process: bodies in memory, long work, delayed refusals, and overload.

Long work waits in a queue: each turn of the event loop starts a little of it, and serves quick requests in between.
The queue serves clients in rounds, so a client with many requests hardly delays the others.

A refusal costs two thirds of a read, so refusals alone hardly protect the process from a client that never stops. A
delayed refusal is sent a little later, while the connection is not read: the client sends its next request only after
it has the answer.

The measure of overload is the lag: how late a timer of the event loop fires. Every request waits that long before its
work starts. This module reads no clock and runs no timer; the server does.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict, deque
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from muniment.protocol.errors import Overloaded
from muniment.service.running.limits.costs import Shed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

K = TypeVar("K")

# A site's bound, as a multiple of the bound of one client.
SITE_SCALE: Final = 4


def has_most(names: Iterable[str], count_of: Callable[[str], int], most: int) -> bool:
    """Whether a client has at least `most`, or its site `SITE_SCALE` times as many; `names` as in `Client`."""
    for name in names:
        if count_of(name) >= most:
            return True
        most *= SITE_SCALE
    return False


def subtract(counts: Counter[K], key: K, size: int = 1) -> None:
    """Subtract `size` from a count, and forget a count of 0: names come from strangers."""
    counts[key] -= size
    if not counts[key]:
        del counts[key]


# Bytes of incomplete bodies in a process and of one client: a thousand JSON bodies of the largest size, and 128. So a
# site of many clients has half of the memory.
HELD_BYTES_MAX: Final = 256 * 1024 * 1024
CLIENT_BYTES_MAX: Final = HELD_BYTES_MAX // 8


class HeldBodies:
    """The memory for the incomplete bodies of one process. A body that arrives with its head is not counted."""

    def __init__(self, *, bytes_max: int = HELD_BYTES_MAX, client_bytes_max: int = CLIENT_BYTES_MAX) -> None:
        """Begin with 0 bytes."""
        self._bytes_max = bytes_max
        self._client_bytes_max = client_bytes_max
        self._bytes = 0
        self._by_name: Counter[str] = Counter()

    @property
    def held_bytes(self) -> int:
        """The bytes of all clients."""
        return self._bytes

    def add(self, names: Sequence[str], size: int) -> None:
        """Count a piece of `size` bytes; `names` are those of `Client`.

        Raises `Overloaded`, and counts nothing, beyond a limit.
        """
        is_full = has_most(names, lambda name: self._by_name[name] + size - 1, self._client_bytes_max)
        if is_full or self._bytes + size > self._bytes_max:
            raise Overloaded("too many request bodies are arriving at this process; try again in a second")
        self._bytes += size
        for name in names:
            self._by_name[name] += size

    def remove(self, names: Sequence[str], size: int) -> None:
        """Free `size` bytes that were added before."""
        self._bytes -= size
        for name in names:
            subtract(self._by_name, name, size)


# Weight that begins in one turn: 16 creates take two to four milliseconds, enough for one commit.
PER_TURN: Final = 16
# Bytes of a body that weigh as much as a create: their decoding takes as long at worst.
BYTES_PER_WEIGHT: Final = 4 * 1024
# The most waiting requests: three rounds of 32 busy clients. Beyond it the client with most waiting requests gets a
# refusal, so waits are bounded.
WAITING_MAX: Final = 96


class _Waiter(NamedTuple):
    future: asyncio.Future[None]
    weight: int


class FairQueue:
    """The queue of one process: the requests of a client in their order, the clients in rounds."""

    def __init__(self, *, per_turn: int = PER_TURN, waiting_max: int = WAITING_MAX) -> None:
        """Begin at most `per_turn` in a turn of the event loop, and have at most `waiting_max` wait."""
        self._per_turn = self._left = per_turn
        self._waiting_max = waiting_max
        # By client, in the order of their turns. Every client in it has a waiter.
        self._waiting: OrderedDict[str, deque[_Waiter]] = OrderedDict()
        self._count = 0
        self._is_next_planned = False

    async def wait(self, client: str, weight: int = 1) -> None:
        """Return when work of `client` may begin: immediately while the present turn has room.

        Raises `Overloaded` when the queue is full and no other client has more requests in it.
        """
        if not self._count and self._left > 0:
            self._left -= weight
            self._plan_next()
            return
        if self._count >= self._waiting_max:
            self._make_room(client)
        waiter = _Waiter(asyncio.get_running_loop().create_future(), weight)
        self._waiting.setdefault(client, deque()).append(waiter)
        self._count += 1
        self._plan_next()
        await waiter.future

    def _make_room(self, client: str) -> None:
        """Refuse the latest request of the client with most of them. Raises `Overloaded` where that is `client`."""
        refusal = Overloaded("too many requests are waiting in this process; try again in a second")
        greediest = max(self._waiting, key=lambda each: len(self._waiting[each]))
        if len(self._waiting[greediest]) <= len(self._waiting.get(client, ())) + 1:
            raise refusal
        refused = self._waiting[greediest].pop()
        self._count -= 1
        if not refused.future.done():
            refused.future.set_exception(refusal)

    def _plan_next(self) -> None:
        if not self._is_next_planned:
            self._is_next_planned = True
            asyncio.get_running_loop().call_soon(self._begin)

    def _begin(self) -> None:
        """Begin a turn of the event loop, less the weight by which the turn before exceeded its share."""
        self._is_next_planned = False
        self._left = min(self._per_turn, self._left + self._per_turn)
        while self._count and self._left > 0:
            waiter = self._next()
            if not waiter.future.done():  # else its client went away
                waiter.future.set_result(None)
                self._left -= waiter.weight
        if self._left < self._per_turn:
            self._plan_next()

    def _next(self) -> _Waiter:
        client, waiters = self._waiting.popitem(last=False)
        waiter = waiters.popleft()
        self._count -= 1
        if waiters:
            self._waiting[client] = waiters  # after all others
        return waiter


_DELAY_SECONDS_MAX: Final = 1.0
# On connections of a proxy, a delayed answer delays other clients too: limits for each client, and for all together.
_CLIENT_MAX: Final = 8
_PROXIED_MAX: Final = 256
# Other connections only take room from new ones: the share of a process's connections that may be delayed.
_CONNECTIONS_SHARE: Final = 4


def delay_seconds(wait_s: float, chance: Callable[[], float]) -> float:
    """The seconds by which a refusal is delayed. Jitter spreads refusals of the same second.

    `chance` gives numbers from 0 up to 1.
    """
    return min(wait_s, _DELAY_SECONDS_MAX) * (0.5 + chance())


class DelayedRefusals:
    """The delayed refusals of one process."""

    def __init__(self) -> None:
        """Begin without delayed refusals."""
        self._proxied: Counter[str] = Counter()
        self._proxied_count = 0
        self._direct_count = 0

    @property
    def count(self) -> int:
        """The number of refusals that are delayed now."""
        return self._proxied_count + self._direct_count

    def enter(self, client: str, *, is_proxied: bool, connections_max: int) -> bool:
        """Count a delayed refusal of `client`, of at most `connections_max` connections; False: send it now."""
        if not is_proxied:
            if self._direct_count * _CONNECTIONS_SHARE >= connections_max:
                return False
            self._direct_count += 1
            return True
        if self._proxied_count >= _PROXIED_MAX or self._proxied[client] >= _CLIENT_MAX:
            return False
        self._proxied[client] += 1
        self._proxied_count += 1
        return True

    def leave(self, client: str, *, is_proxied: bool) -> None:
        """Stop counting a refusal that was sent, or whose connection ended; once for each `enter` that was True."""
        if not is_proxied:
            self._direct_count -= 1
            return
        self._proxied_count -= 1
        subtract(self._proxied, client)


_MS: Final = 1_000_000
# Between two calls of `Overload.tick`.
TICK_SECONDS: Final = 0.01
_TICK_NS: Final = 10 * _MS
# The lag of a window is the longest in it. A level is reached, or left, after three windows in a row: one long turn of
# the loop, such as a garbage collection, causes no refusal.
_WINDOW_NS: Final = 100 * _MS
_WINDOWS_HELD: Final = 3
# The lags from which EARLY, MIDDLE and LATE are refused. An idle process has under 1 ms, a busy one 10 to 50.
LEVELS_NS: Final = (100 * _MS, 200 * _MS, 400 * _MS)
# Requests that are being served. A process answers some thousands a second: the last of so many waits for 100 ms.
IN_FLIGHT_MAX: Final = 512

_LEVEL_OF: Final = {Shed.EARLY: 1, Shed.MIDDLE: 2, Shed.LATE: 3, Shed.READ: 3, Shed.PAGE: 3}


class Overload:
    """The load of one process. The server counts `in_flight`, without waits for clients and delayed refusals."""

    def __init__(self, chance: Callable[[], float], now_ns: int) -> None:
        """`chance` gives numbers from 0 up to 1; `now_ns` is the present time of the clock that `tick` gets."""
        self._chance = chance
        self.in_flight = 0
        # Requests refused since the last line in the log, which sets this to 0.
        self.refused = 0
        self.lag_ns = 0  # the lag of the last window
        self.level = 0  # of those in `LEVELS_NS`
        self._ticked_ns = now_ns
        self._began_ns = now_ns
        self._latest_ns = 0
        self._lags: deque[int] = deque([0] * _WINDOWS_HELD, maxlen=_WINDOWS_HELD)

    def tick(self, now_ns: int) -> int:
        """Record the time: the server's timer, set for 10 ms after the last call, fired.

        Returns how late it was, in nanoseconds.
        """
        late_ns = now_ns - self._ticked_ns - _TICK_NS
        self._ticked_ns = now_ns
        self._latest_ns = max(self._latest_ns, late_ns)
        if now_ns - self._began_ns < _WINDOW_NS:
            return late_ns
        self.lag_ns = self._latest_ns
        self._lags.append(self.lag_ns)
        self._began_ns, self._latest_ns = now_ns, 0
        lowest, highest = _level(min(self._lags)), _level(max(self._lags))
        self.level = min(max(self.level, lowest), highest)
        return late_ns

    def refuses(self, shed: Shed) -> bool:
        """Whether a request of this kind is refused now."""
        if shed is Shed.NEVER:
            return False
        if self.in_flight >= IN_FLIGHT_MAX:
            return True
        if not self.level:
            return False
        if self.level < _LEVEL_OF[shed]:
            return False
        return shed not in {Shed.READ, Shed.PAGE} or self._chance() < self.share_of_reads

    @property
    def share_of_reads(self) -> float:
        """The share of reads that is refused: 0.5 at twice the lag of the last level, 0.9 at ten times that lag."""
        if self.level < len(LEVELS_NS):
            return 0.0
        return 1 - LEVELS_NS[-1] / max(min(self._lags), LEVELS_NS[-1])


def _level(lag_ns: int) -> int:
    return sum(lag_ns >= level_ns for level_ns in LEVELS_NS)
