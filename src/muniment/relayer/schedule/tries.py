"""When a run that has no result yet is tried again. Times are milliseconds since 1970. Pure."""

from __future__ import annotations

from typing import Final

_PAUSE_MS: Final = 5_000
_PAUSE_MS_MAX: Final = 300_000
# A block comes within seconds, unless the chain or its nodes stand still.
_NO_BLOCK: Final = "no-block"
_TRIES_FOR_A_BLOCK: Final = 300_000 // _PAUSE_MS
# One more try is made when the time of a run is nearly over: what failed may have passed.
_LAST_MS: Final = 30_000


def next_try(code: str, tries: int, now_ms: int, until_ms: int) -> int:
    """When to try again after so many tries, the last of which had no result for the reason `code` (of `incomplete`).

    A block is asked for every five seconds for five minutes. Other pauses double, from five seconds to five minutes;
    one that would leave out the last half minute before `until_ms` ends in it.
    """
    if code == _NO_BLOCK:
        tries = max(1, tries - _TRIES_FOR_A_BLOCK)
    next_ms = now_ms + min(_PAUSE_MS << min(tries - 1, 10), _PAUSE_MS_MAX)
    last_ms = until_ms - _LAST_MS
    return last_ms if now_ms < last_ms < next_ms else next_ms
