"""A connection whose last answer was sent while its client still sends (RFC 9112 section 9.6).

A connection that is closed with bytes unread is reset, and the client's kernel throws the answer away. So what comes
is read and dropped for a while.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

# Twice what an upload may have, for a client that sends all of it before it reads.
LINGERING_BYTES_MAX: Final = 32 * 1024 * 1024
LINGERING_BYTES_PER_SECOND_MIN: Final = 64 * 1024
# How often the rate is looked at: a client that is done sending is let go after this.
LOOK_SECONDS: Final = 2.0


@dataclass(slots=True)
class Lingering:
    """How much came since the answer, and in the time since the last look."""

    looked: float
    received: int = 0
    _since_look: int = 0

    def take(self, size: int) -> bool:
        """Drop `size` bytes; False when that was too much."""
        self.received += size
        self._since_look += size
        return self.received <= LINGERING_BYTES_MAX

    def goes_on(self, now: float) -> bool:
        """Whether the client still sends fast enough to be waited for; begins the next stretch of time."""
        is_fast = self._since_look >= LINGERING_BYTES_PER_SECOND_MIN * (now - self.looked)
        self.looked, self._since_look = now, 0
        return is_fast
