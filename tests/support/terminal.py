"""A terminal for tests."""

from __future__ import annotations

import os
from contextlib import suppress


def shown_on(terminal: int) -> bytes:
    """Everything written to a terminal until it is closed, given its other end, which is closed too."""
    shown = b""
    with suppress(OSError):  # EIO, which is its end of file
        while piece := os.read(terminal, 65_536):
            shown += piece
    os.close(terminal)
    return shown
