"""CPU time of a piece of code: a bound on it holds beside other tests too."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress

from muniment.outgoing import Unreachable
from muniment.protocol.errors import Refusal

REFUSALS = (Refusal, ValueError, Unreachable)


@contextmanager
def cpu_within(seconds_max: float) -> Generator[None]:
    """Assert that the block takes less than `seconds_max` of CPU time of this process on an idle machine.

    Garbage collection is off meanwhile: in a test run it takes a second.
    """
    gc.disable()
    started = time.process_time()
    try:
        yield
        seconds = time.process_time() - started
    finally:
        gc.enable()
    assert seconds < seconds_max * (slowness() if seconds >= seconds_max else 1), f"{seconds:.3f} s of CPU time"


def cpu_seconds(call: Callable[[], object], runs: int) -> float:
    """CPU time of this thread for one call, the fastest of `runs`. Refusals are ignored."""
    best = float("inf")
    for _ in range(runs):
        started = time.thread_time()
        with suppress(*REFUSALS):
            call()
        best = min(best, time.thread_time() - started)
    return best


def slowness() -> float:
    """Slowdown of this machine against an idle one, on which a loop of a million turns takes 30 ms."""

    def turn() -> None:
        for number in range(250_000):
            _ = number * number

    return max(1.0, cpu_seconds(turn, 5) / 0.0075)
