"""Answers that clients do not read: for how long one may stand still, and how much memory all of them may take."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from muniment.server.heap import give_back

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

# What a connection must drain within the time below while it owes the client more: 17.5 kbit/s.
DRAINED_BYTES_MIN: Final = 64 * 1024
DRAIN_SECONDS_MAX: Final = 30
# What the answers of a process may take while they wait to be read.
UNREAD_BYTES_MAX: Final = 256 * 1024 * 1024
# When they take more, room is made down to this share of it, so that it is not made for every connection anew.
_SHARE_LEFT: Final = 7 / 8
_LOOK_SECONDS: Final = 1.0
# After a crowd that left so much unread, half of which was freed since, memory is given back.
_GIVEN_BACK_BYTES_MIN: Final = 32 * 1024 * 1024


class Unread(Protocol):
    """A connection whose client does not read as fast as it is answered."""

    client: str

    def unread_bytes(self) -> int:
        """Bytes that were written and are not sent."""
        ...

    def abort(self) -> None:
        """End the connection at once, with what was not sent."""
        ...


@dataclass(slots=True)
class _Standing:
    """How much a connection held when its time began, and how much when it was last looked at."""

    since: float
    held: int
    now_held: int


class UnreadAnswers:
    """The connections of a process whose clients have to read before they get more."""

    def __init__(
        self, *, bytes_max: int = UNREAD_BYTES_MAX, seconds_max: float = DRAIN_SECONDS_MAX,
        give_back: Callable[[], None] = give_back,
    ) -> None:  # fmt: skip
        """Bound all together by `bytes_max`; each has `seconds_max` to drain 64 KiB, or the rest.

        `give_back` is called when much of what they took was freed.
        """
        self._bytes_max = bytes_max
        self._seconds_max = seconds_max
        self._give_back = give_back
        self._standing: dict[Unread, _Standing] = {}
        self._bytes = 0
        # The most that was unread since memory was last given back.
        self._most = 0
        self._timer: asyncio.TimerHandle | None = None

    def add(self, connection: Unread, loop: asyncio.AbstractEventLoop) -> None:
        """From now on its client has to read, in the time of `loop`."""
        if connection in self._standing:
            return
        held = connection.unread_bytes()
        self._standing[connection] = _Standing(loop.time(), held, held)
        self._bytes += held
        self._most = max(self._most, self._bytes)
        if self._timer is None:
            self._timer = loop.call_later(_LOOK_SECONDS, self._look, loop)
        if self._bytes > self._bytes_max:
            self._make_room()

    def discard(self, connection: Unread) -> None:
        """Its client has read, or is gone."""
        if standing := self._standing.pop(connection, None):
            self._bytes -= standing.now_held

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        """Abort the connections that stood still for too long; again in a second, while there are any."""
        self._timer = None
        now = loop.time()
        for connection, standing in list(self._standing.items()):
            held = connection.unread_bytes()
            self._bytes += held - standing.now_held
            standing.now_held = held
            if standing.held - held >= DRAINED_BYTES_MIN:
                standing.since, standing.held = now, held
            elif now - standing.since > self._seconds_max:
                self.discard(connection)
                connection.abort()
        if self._standing:
            self._timer = loop.call_later(_LOOK_SECONDS, self._look, loop)
        if self._most >= _GIVEN_BACK_BYTES_MIN and self._bytes <= self._most / 2:
            self._most = self._bytes
            loop.call_later(
                _LOOK_SECONDS, self._give_back
            )  # transports that were aborted let go at the loop's next turn

    def _make_room(self) -> None:
        """Abort connections of whoever holds most, those first that have stood still for longest."""
        by_client: defaultdict[str, int] = defaultdict(int)
        for connection, standing in self._standing.items():
            by_client[connection.client] += standing.now_held
        while self._bytes > self._bytes_max * _SHARE_LEFT and by_client:
            most = max(by_client, key=by_client.__getitem__)
            del by_client[most]
            theirs = [each for each in self._standing if each.client == most]
            for connection in sorted(theirs, key=lambda each: self._standing[each].since):
                self.discard(connection)
                connection.abort()
                if self._bytes <= self._bytes_max * _SHARE_LEFT:
                    break
