"""How long a trigger rests that fails again and again. Times are milliseconds since 1970. Pure."""

from __future__ import annotations

from typing import Final

# After so many failures in sequence a trigger rests: a minute, then twice as long each time, at most an hour.
_FAILURES_MAX: Final = 3
_REST_MS: Final = 60_000
REST_MS_MAX: Final = 3_600_000


def rest_ms(failures: int) -> int:
    """The rest after so many failures in sequence, in milliseconds; 0: none."""
    if failures < _FAILURES_MAX:
        return 0
    return min(REST_MS_MAX, _REST_MS << min(failures - _FAILURES_MAX, 10))


def rests_until(until_ms: int, now_ms: int) -> int:
    """Until when a trigger rests that was told to; 0: it does not.

    No rest is longer than an hour: an end that is further away was set by a clock that was ahead.
    """
    return until_ms if until_ms <= now_ms + REST_MS_MAX else 0
