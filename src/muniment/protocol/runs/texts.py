"""The texts of runs that prove themselves, and the limits of runs; the sandbox knows these, but no records."""

from __future__ import annotations

from typing import Final, Literal

from muniment.protocol.wire import BoundedText

# The JSON of one record; as long as the body of one request may be.
RUN_BYTES_MAX: Final = 256 * 1024
# What one run may send, ask and log: honest functions send one intent, ask some ten questions and log a few lines. With
# lines of 4,000 characters a log could be 800 KB, so all lines together have a quarter of a record.
OUTPUTS_MAX: Final = 32
INPUTS_MAX: Final = 256
RUN_LOGS_MAX: Final = 200
RUN_LOGS_BYTES_MAX: Final = RUN_BYTES_MAX // 4
REASON_TEXT_MAX: Final = 1_000
# What a function may log in one line, in characters; and with the level before it.
LOG_TEXT_MAX: Final = 4_000
LOG_CHARACTERS_MAX: Final = LOG_TEXT_MAX + len("[Critical] ")

# The questions that a function can ask.
Query = Literal["evmCall", "tokenPrice", "relevantTokens", "subgraph", "svmAccountsInfo", "api"]


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
