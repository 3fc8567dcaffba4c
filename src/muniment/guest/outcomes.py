"""How a run is stopped. `muniment.protocol.runs.reasons` has the reasons and what they mean."""

from __future__ import annotations

from muniment.guest.limits import REASON_LENGTH_MAX
from muniment.protocol.runs.reasons import StopReason


class Stop(Exception):
    """A run is stopped for `reason`; `text` says what happened, as `bounded` shortens it."""

    def __init__(self, reason: StopReason, text: str) -> None:
        super().__init__(reason, text)
        self.reason: StopReason = reason
        self.text: str = bounded(text)


def bounded(text: str) -> str:
    """`text` with at most as many characters as a record takes, and without U+0000, which PostgreSQL cannot store."""
    shown = text if len(text) <= REASON_LENGTH_MAX else f"{text[: REASON_LENGTH_MAX - 1]}…"
    return shown.replace("\0", "\ufffd")
