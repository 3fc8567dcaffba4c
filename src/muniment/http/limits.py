"""Bounds of one request: sizes and times beyond which it is refused. For rates see `muniment.limits`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

# A list of 100 trigger signatures in a query is 13.3 KB, the longest target that an honest client sends.
TARGET_BYTES_MAX: Final = 32 * 1024
# A token is under 1 KB; browsers send a few KB of header fields. nginx allows 32 KB as well.
HEADER_BYTES_MAX: Final = 32 * 1024
# A body may take longer than its time-out when it comes at least this fast: a slow phone uploading a bundle.
BODY_BYTES_PER_SECOND_MIN: Final = 16 * 1024


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits that an operator sets; `muniment.settings` explains each."""

    body_bytes_max: int
    body_timeout_s: int
