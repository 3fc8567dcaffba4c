"""A terminal that a test looks at."""

from __future__ import annotations

import os
from contextlib import suppress


def shown_on(terminal: int) -> bytes:
    """All that is written to a terminal until nobody has it open any more, given its other end, which is closed."""
    shown = b""
    with suppress(OSError):  # EIO, which is its end of file
        while piece := os.read(terminal, 65_536):
            shown += piece
    os.close(terminal)
    return shown
