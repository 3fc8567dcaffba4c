"""Bodies that arrive in pieces and wait in memory for the rest: bounded for the process, and for each client."""

from __future__ import annotations

from collections import Counter
from typing import Final

from muniment.errors import Overloaded

# Bytes of begun bodies in one process, and those of one client: a thousand of the longest, and 256 of them.
HELD_BYTES_MAX: Final = 256 * 1024 * 1024
CLIENT_BYTES_MAX: Final = HELD_BYTES_MAX // 4


class HeldBodies:
    """What the begun bodies of one process take. A body that came at once is never counted, nor refused."""

    def __init__(self, *, bytes_max: int = HELD_BYTES_MAX, client_bytes_max: int = CLIENT_BYTES_MAX) -> None:
        """Nothing is held yet."""
        self._bytes_max = bytes_max
        self._client_bytes_max = client_bytes_max
        self._bytes = 0
        self._by_client: Counter[str] = Counter()

    @property
    def held_bytes(self) -> int:
        """What all of them take."""
        return self._bytes

    def add(self, client: str, size: int) -> None:
        """Another piece is held. Raises `Overloaded`, and counts nothing, where that is too much."""
        if self._bytes + size > self._bytes_max or self._by_client[client] + size > self._client_bytes_max:
            raise Overloaded("too many bodies are on their way to this process; try again in a second")
        self._bytes += size
        self._by_client[client] += size

    def remove(self, client: str, size: int) -> None:
        """So many bytes that were added are held no longer."""
        self._bytes -= size
        self._by_client[client] -= size
        if not self._by_client[client]:
            del self._by_client[client]
