"""Refusals that are parked: sent a little later, with the connection unread meanwhile.

To answer a refusal costs two thirds of a read, so a client that asks on and on costs as much refused as served. A
parked one asks when it has its answer.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

_PARKED_SECONDS_MAX: Final = 1.0
# On connections of a proxy others wait behind a parked answer: so many are parked there, of one client and of all.
_CLIENT_MAX: Final = 8
_PROXIED_MAX: Final = 256
# Elsewhere one stands in nobody's way but that of new connections: so much of what a process may have is parked.
_CONNECTIONS_SHARE: Final = 4


def parked_seconds(wait_s: float, chance: Callable[[], float]) -> float:
    """How long a refusal is parked that a client must wait for; with jitter, or those of a second would wake together.

    `chance` gives numbers from 0 up to 1.
    """
    return min(wait_s, _PARKED_SECONDS_MAX) * (0.5 + chance())


class Parking:
    """The parked refusals of one process."""

    def __init__(self) -> None:
        """None yet."""
        self._proxied: Counter[str] = Counter()
        self._proxied_count = 0
        self._direct_count = 0

    @property
    def parked(self) -> int:
        """How many are parked now."""
        return self._proxied_count + self._direct_count

    def enter(self, client: str, *, is_proxied: bool, connections_max: int) -> bool:
        """Park a refusal of `client` where a process has at most `connections_max`; False: it leaves at once."""
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
        """The refusal was sent, or its connection ended. Once for each `enter` that was True."""
        if not is_proxied:
            self._direct_count -= 1
            return
        self._proxied_count -= 1
        self._proxied[client] -= 1
        if not self._proxied[client]:
            del self._proxied[client]
