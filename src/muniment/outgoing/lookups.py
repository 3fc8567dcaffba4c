"""Look-ups of names that strangers chose: in threads of their own, in turns, with a limit of time.

The system's resolver has no time limit that a caller can set: a name whose server is silent holds a thread for some ten
seconds. So a stranger has few threads at a time, whatever becomes of the callers; strangers take turns; and a name that
was known before is not waited for: its last addresses do until new ones come (as RFC 8767 has it for resolvers).
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Hashable
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from functools import partial
from typing import Any, Final, NamedTuple

from muniment.outgoing.answers import Unreachable

# The wait of a caller for an unknown name, and for a known name.
SECONDS_MAX: Final = 5.0
KNOWN_SECONDS_MAX: Final = 0.5
# Lifetime of addresses: one to three days by RFC 8767 section 4.
_KNOWN_S: Final = 86_400.0
_NAMES_KNOWN: Final = 4_096


class _Known(NamedTuple):
    addresses: list[str]
    at_s: float


class _Wanted(NamedTuple):
    host: str
    port: int
    found: asyncio.Future[list[str]]


class Lookups:
    """The look-ups of a process for one purpose."""

    def __init__(self, threads_max: int, per_asker_max: int) -> None:
        """At most `threads_max` at a time, and of them `per_asker_max` for one asker."""
        self._threads_max, self._per_asker_max = threads_max, per_asker_max
        # Threads are made when they are used. One that waits for a resolver cannot be stopped.
        self._threads = ThreadPoolExecutor(threads_max, "look-up")
        self._running: Counter[Hashable] = Counter()
        # By asker, in the order of their turns.
        self._waiting: OrderedDict[Hashable, deque[_Wanted]] = OrderedDict()
        self._known: OrderedDict[str, _Known] = OrderedDict()

    async def find(self, host: str, port: int, asker: Hashable) -> list[str]:
        """The addresses of `host`. Raises `Unreachable` without an address within the limit of time."""
        known = self._known.get(host)
        if known is not None and time.monotonic() - known.at_s > _KNOWN_S:
            known = None
        wanted = _Wanted(host, port, asyncio.get_running_loop().create_future())
        self._waiting.setdefault(asker, deque()).append(wanted)
        self._begin()
        try:
            async with asyncio.timeout(SECONDS_MAX if known is None else KNOWN_SECONDS_MAX):
                return await wanted.found
        except TimeoutError:
            if known is not None:
                return known.addresses
            raise Unreachable("unknown-host", "the name was not found in time") from None
        finally:
            self._forget(asker, wanted)

    def close(self) -> None:
        """Start no more look-ups."""
        self._waiting.clear()
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _begin(self) -> None:
        """Begin look-ups while there are threads: one of each asker, then the next of each."""
        while self._running.total() < self._threads_max:
            asker = next((each for each in self._waiting if self._running[each] < self._per_asker_max), None)
            if asker is None:
                return
            waiting = self._waiting.pop(asker)
            wanted = waiting.popleft()
            if waiting:
                self._waiting[asker] = waiting  # after all others
            self._running[asker] += 1
            look_up = partial(socket.getaddrinfo, wanted.host, wanted.port, type=socket.SOCK_STREAM)
            looking = asyncio.get_running_loop().run_in_executor(self._threads, look_up)
            looking.add_done_callback(partial(self._end, asker, wanted))

    def _forget(self, asker: Hashable, wanted: _Wanted) -> None:
        """Drop a look-up that has lost its caller, unless it has begun."""
        waiting = self._waiting.get(asker)
        if waiting is not None and wanted in waiting:
            waiting.remove(wanted)
            if not waiting:
                del self._waiting[asker]

    def _end(self, asker: Hashable, wanted: _Wanted, looking: asyncio.Future[list[Any]]) -> None:
        self._running[asker] -= 1
        if not self._running[asker]:
            del self._running[asker]
        found = [] if looking.cancelled() or looking.exception() else addresses_of(looking.result())
        if found:
            self._known.pop(wanted.host, None)
            self._known[wanted.host] = _Known(found, time.monotonic())
            if len(self._known) > _NAMES_KNOWN:
                self._known.popitem(last=False)
        if not wanted.found.done():
            if found:
                wanted.found.set_result(found)
            else:
                wanted.found.set_exception(Unreachable("unknown-host"))
        self._begin()


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


def addresses_of(found: list[Any]) -> list[str]:
    """The addresses in an answer of `getaddrinfo`, each once, in its order."""
    return list(dict.fromkeys(str(entry[4][0]).partition("%")[0] for entry in found))
