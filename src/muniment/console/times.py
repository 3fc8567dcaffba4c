"""Times for a reader: how long ago or how far ahead, with the exact time beside it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from muniment.http.html.markup import Html, html
from muniment.wire import iso_time

_UNITS: Final = (("day", 86_400_000), ("hour", 3_600_000), ("minute", 60_000), ("second", 1_000))
# Up to this many of a unit, the smaller unit says more: 36 hours rather than one day.
_FEW: Final = 2
# 9999-12-31T23:59:59.999Z, the last date-time of RFC 3339 and of the standard library.
DATED_MS_MAX: Final = 253_402_300_799_999


def relative(timestamp_ms: int, now_ms: int) -> Html:
    """`3 minutes ago` or `in 2 hours`, with the exact time as its title."""
    if timestamp_ms > DATED_MS_MAX:
        return html("<span>{} ms after 1970</span>", timestamp_ms)
    return html(
        '<time datetime="{}" title="{}">{}</time>',
        iso_time(timestamp_ms), absolute(timestamp_ms), relative_words(timestamp_ms, now_ms),
    )  # fmt: skip


def absolute(timestamp_ms: int) -> str:
    """`2026-11-20 19:48:00 UTC`."""
    if timestamp_ms > DATED_MS_MAX:
        return f"{timestamp_ms} ms after 1970"
    return f"{iso_time(timestamp_ms)[:19].replace('T', ' ')} UTC"


def milliseconds(moment: str) -> int:
    """The time of an answer (`DateTime`) in milliseconds since 1970."""
    return round(datetime.fromisoformat(moment).replace(tzinfo=UTC).timestamp() * 1000)


def relative_words(timestamp_ms: int, now_ms: int) -> str:
    """`3 minutes ago` or `in 2 hours`."""
    distance_ms = timestamp_ms - now_ms
    size = abs(distance_ms)
    for name, length in _UNITS:
        count = size // length
        if count >= _FEW or (count and name == "second"):
            words = f"{count:,} {name}{'s' if count > 1 else ''}"
            return f"in {words}" if distance_ms > 0 else f"{words} ago"
    return "now"
