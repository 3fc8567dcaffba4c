"""Refusals that are parked: sent a little later, with the connection unread meanwhile.

A refusal costs two thirds of a read, so refusals alone hardly spare the process from a client that never stops asking.
A client whose refusal is parked sends its next request after it has the answer.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

_PARKED_SECONDS_MAX: Final = 1.0
# On connections of a proxy, other clients wait behind a parked answer: limits for one client, and for all together.
_CLIENT_MAX: Final = 8
_PROXIED_MAX: Final = 256
# Other connections only take room from new ones: the share of a process's connections that may be parked.
_CONNECTIONS_SHARE: Final = 4


def parked_seconds(wait_s: float, chance: Callable[[], float]) -> float:
    """The seconds for which a refusal is parked. Jitter spreads refusals that were parked in the same second.

    `chance` gives numbers from 0 up to 1.
    """
    return min(wait_s, _PARKED_SECONDS_MAX) * (0.5 + chance())


class Parking:
    """The parked refusals of one process."""

    def __init__(self) -> None:
        """Begin without parked refusals."""
        self._proxied: Counter[str] = Counter()
        self._proxied_count = 0
        self._direct_count = 0

    @property
    def parked(self) -> int:
        """The number of refusals that are parked now."""
        return self._proxied_count + self._direct_count

    def enter(self, client: str, *, is_proxied: bool, connections_max: int) -> bool:
        """Park a refusal of `client` in a process with at most `connections_max` connections; False: send it now."""
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
        """Forget a refusal that was sent, or whose connection ended. Once for each `enter` that was True."""
        if not is_proxied:
            self._direct_count -= 1
            return
        self._proxied_count -= 1
        self._proxied[client] -= 1
        if not self._proxied[client]:
            del self._proxied[client]
