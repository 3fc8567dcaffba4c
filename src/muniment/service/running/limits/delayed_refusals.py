"""Delayed refusals: sent a little later, while the connection is not read.

A refusal costs two thirds of a read, so refusals alone hardly protect the process from a client that never stops.
A client whose refusal is delayed sends its next request only after it has the answer.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

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
        self._proxied[client] -= 1
        if not self._proxied[client]:
            del self._proxied[client]
