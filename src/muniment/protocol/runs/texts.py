"""The texts of runs that prove themselves, and the limits that they keep."""

from __future__ import annotations

from typing import Final

from muniment.protocol.wire import BoundedText

REASON_TEXT_MAX: Final = 1_000
# What a function may log in one line, in characters; and with the level before it.
LOG_TEXT_MAX: Final = 4_000
LOG_CHARACTERS_MAX: Final = LOG_TEXT_MAX + len("[Critical] ")


class ReasonText(
    BoundedText, length_max=REASON_TEXT_MAX, description=f"At most {REASON_TEXT_MAX} characters",
    example="the price is above the limit",
):  # fmt: skip
    """What a reason adds for a reader."""

    __slots__ = ()


class Engine(
    BoundedText, length_min=1, length_max=100, description="The program that made the run, with its version",
    example="muniment 0.3.0, wasmtime 40.0.0",
):  # fmt: skip
    """The program that made a run, with its version."""

    __slots__ = ()


class RunLog(
    BoundedText, length_max=LOG_CHARACTERS_MAX, example="[Info] price 1.02",
    description=f"A line of the function's log with its level, at most {LOG_CHARACTERS_MAX} characters",
):  # fmt: skip
    """A line that the function logged, with its level: `[Info] price 1.02`."""

    __slots__ = ()
