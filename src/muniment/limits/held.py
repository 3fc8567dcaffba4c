"""A bound on the memory for bodies that arrive in pieces: for the process, and for each client."""

from __future__ import annotations

from collections import Counter
from typing import Final

from muniment.errors import Overloaded

# Bytes of incomplete bodies in a process and of one client: a thousand JSON bodies of the largest size, and 256.
HELD_BYTES_MAX: Final = 256 * 1024 * 1024
CLIENT_BYTES_MAX: Final = HELD_BYTES_MAX // 4


class HeldBodies:
    """The memory for the incomplete bodies of one process. A body that arrives with its head is not counted."""

    def __init__(self, *, bytes_max: int = HELD_BYTES_MAX, client_bytes_max: int = CLIENT_BYTES_MAX) -> None:
        """Nothing is held yet."""
        self._bytes_max = bytes_max
        self._client_bytes_max = client_bytes_max
        self._bytes = 0
        self._by_client: Counter[str] = Counter()

    @property
    def held_bytes(self) -> int:
        """The bytes of all clients."""
        return self._bytes

    def add(self, client: str, size: int) -> None:
        """Count a piece of `size` bytes. Raises `Overloaded`, and counts nothing, beyond a limit."""
        if self._bytes + size > self._bytes_max or self._by_client[client] + size > self._client_bytes_max:
            raise Overloaded("too many request bodies are arriving at this process; try again in a second")
        self._bytes += size
        self._by_client[client] += size

    def remove(self, client: str, size: int) -> None:
        """Free `size` bytes that were added before."""
        self._bytes -= size
        self._by_client[client] -= size
        if not self._by_client[client]:
            del self._by_client[client]
