"""What a piece of a program takes of the processor: a bound on it holds beside other tests too."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress

from muniment.errors import Refusal
from muniment.outgoing import Unreachable

REFUSALS = (Refusal, ValueError, Unreachable)


@contextmanager
def cpu_within(seconds_max: float) -> Generator[None]:
    """What is inside takes less than `seconds_max` of this process's CPU time on an idle machine.

    Nothing is collected meanwhile: the objects of a test run are so many that a collection takes a second.
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
    """What one call of the fastest of `runs` takes of this thread's CPU. What it refuses, it refuses."""
    best = float("inf")
    for _ in range(runs):
        started = time.thread_time()
        with suppress(*REFUSALS):
            call()
        best = min(best, time.thread_time() - started)
    return best


def slowness() -> float:
    """How much slower this machine is now than an idle one, on which a million turns of a loop take 30 ms."""

    def turn() -> None:
        for number in range(250_000):
            _ = number * number

    return max(1.0, cpu_seconds(turn, 5) / 0.0075)
