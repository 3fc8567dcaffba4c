"""A bound on the memory for incomplete bodies: of the process, each site of IPv6, and each client."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from muniment.protocol.errors import Overloaded
from muniment.service.running.limits.sites import has_most

if TYPE_CHECKING:
    from collections.abc import Sequence

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
            self._by_name[name] -= size
            if not self._by_name[name]:
                del self._by_name[name]
