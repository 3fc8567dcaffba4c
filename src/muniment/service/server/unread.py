"""Limits of unread answers: the time for each, and the memory for all."""

from __future__ import annotations

import ctypes
from collections import defaultdict
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable


def give_back() -> None:
    """Return all free memory of glibc's heap to the system (malloc_trim(3)); other C libraries lack the call.

    By default glibc returns only the end of the heap, so one small object after many freed answers keeps them all.
    250 MB take 20 ms, once after a crowd.
    """
    if trim := _trim():
        trim(0)


@cache
def _trim() -> Any:
    return getattr(ctypes.CDLL(None), "malloc_trim", None)


# Bytes that a connection must drain within the time below while more are unsent: 17.5 kbit/s.
DRAINED_BYTES_MIN: Final = 64 * 1024
DRAIN_SECONDS_MAX: Final = 30
# Streams hold little, and phones lose their network for a while: any byte within this time is enough.
STREAM_SECONDS_MAX: Final = 60
# Memory for the unread answers of a process.
UNREAD_BYTES_MAX: Final = 256 * 1024 * 1024
# Beyond the limit, connections are aborted down to this share, so that aborts are rare.
_SHARE_LEFT: Final = 7 / 8
_LOOK_SECONDS: Final = 1.0
# Memory is given back after this much was unread and half of it was freed.
_GIVEN_BACK_BYTES_MIN: Final = 32 * 1024 * 1024


class Unread(Protocol):
    """A connection whose client reads more slowly than answers are written."""

    client: str

    @property
    def is_stream(self) -> bool:
        """Whether its answer is a stream, which has no end."""
        ...

    def unread_bytes(self) -> int:
        """Bytes that are written but not sent."""
        ...

    def abort(self) -> None:
        """End the connection immediately; unsent bytes are dropped."""


@dataclass(slots=True)
class _Pace:
    """The unread bytes of a connection: when its time began, and at the last check."""

    since: float
    held: int
    now_held: int


class UnreadAnswers:
    """The connections of a process with unread answers."""

    def __init__(
        self, *, bytes_max: int = UNREAD_BYTES_MAX, seconds_max: float = DRAIN_SECONDS_MAX,
        stream_seconds_max: float = STREAM_SECONDS_MAX, give_back: Callable[[], None] = give_back,
    ) -> None:  # fmt: skip
        """All together hold at most `bytes_max`; each has `seconds_max` to drain 64 KiB, or the rest.

        A stream has `stream_seconds_max` to drain anything. `give_back` is called when much of their memory was freed.
        """
        self._bytes_max = bytes_max
        self._seconds_max = seconds_max
        self._stream_seconds_max = stream_seconds_max
        self._give_back = give_back
        self._paces: dict[Unread, _Pace] = {}
        self._bytes = 0
        # The most that was unread since memory was last given back.
        self._most = 0
        self._timer: asyncio.TimerHandle | None = None

    def add(self, connection: Unread, loop: asyncio.AbstractEventLoop) -> None:
        """Start the time limit for the client of `connection`, by the clock of `loop`."""
        if connection in self._paces:
            return
        held = connection.unread_bytes()
        self._paces[connection] = _Pace(loop.time(), held, held)
        self._bytes += held
        self._most = max(self._most, self._bytes)
        if self._timer is None:
            self._timer = loop.call_later(_LOOK_SECONDS, self._look, loop)
        if self._bytes > self._bytes_max:
            self._make_room()

    def discard(self, connection: Unread) -> None:
        """End the time limit: the client has read, or has disconnected."""
        if pace := self._paces.pop(connection, None):
            self._bytes -= pace.now_held

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        """Abort the connections whose time is over; repeats every second while any connection is left."""
        self._timer = None
        now = loop.time()
        for connection, pace in list(self._paces.items()):
            held = connection.unread_bytes()
            self._bytes += held - pace.now_held
            pace.now_held = held
            if pace.held - held >= (1 if connection.is_stream else DRAINED_BYTES_MIN):
                pace.since, pace.held = now, held
            elif now - pace.since > (self._stream_seconds_max if connection.is_stream else self._seconds_max):
                self.discard(connection)
                connection.abort()
        if self._paces:
            self._timer = loop.call_later(_LOOK_SECONDS, self._look, loop)
        if self._most >= _GIVEN_BACK_BYTES_MIN and self._bytes <= self._most / 2:
            self._most = self._bytes
            loop.call_later(_LOOK_SECONDS, self._give_back)  # aborted transports free their memory in the next turn

    def _make_room(self) -> None:
        """Abort connections of the client with most unread bytes, those with the earliest start first."""
        by_client: defaultdict[str, int] = defaultdict(int)
        for connection, pace in self._paces.items():
            by_client[connection.client] += pace.now_held
        while self._bytes > self._bytes_max * _SHARE_LEFT and by_client:
            most = max(by_client, key=by_client.__getitem__)
            del by_client[most]
            theirs = [each for each in self._paces if each.client == most]
            for connection in sorted(theirs, key=lambda each: self._paces[each].since):
                self.discard(connection)
                connection.abort()
                if self._bytes <= self._bytes_max * _SHARE_LEFT:
                    break
