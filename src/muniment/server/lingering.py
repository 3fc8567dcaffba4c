"""A connection whose last answer was sent while its client still sends (RFC 9112 section 9.6).

A connection that is closed with unread bytes is reset, and the client's kernel discards the answer. So the server reads
and drops those bytes for a while.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

# Twice the largest upload, for a client that sends all of it before it reads.
LINGERING_BYTES_MAX: Final = 32 * 1024 * 1024
LINGERING_BYTES_PER_SECOND_MIN: Final = 64 * 1024
# Between two checks of the rate: a connection whose client sends no more ends after this.
LOOK_SECONDS: Final = 2.0


@dataclass(slots=True)
class Lingering:
    """The bytes since the answer, and those since the last check of the rate."""

    looked: float
    received: int = 0
    _since_look: int = 0

    def take(self, size: int) -> bool:
        """Drop `size` bytes; False beyond the limit."""
        self.received += size
        self._since_look += size
        return self.received <= LINGERING_BYTES_MAX

    def goes_on(self, now: float) -> bool:
        """Whether the client still sends fast enough; `now` begins the next period."""
        is_fast = self._since_look >= LINGERING_BYTES_PER_SECOND_MIN * (now - self.looked)
        self.looked, self._since_look = now, 0
        return is_fast
