"""Count calls of Python and C functions instead of time: the count is the same on every machine.

The work inside a call of a C function is not counted; the tests marked `long` measure its time.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from cpu_time import REFUSALS


@dataclass
class Calls:
    """Number of calls in this thread."""

    count: int = 0

    def see(self, frame: Any, event: str, argument: Any) -> None:
        del frame, argument
        if event in {"call", "c_call"}:
            self.count += 1


@contextmanager
def counted_calls() -> Generator[Calls]:
    """Count the calls in the block. Garbage collection is off meanwhile, because its time depends on earlier tests."""
    calls = Calls()
    gc.disable()
    sys.setprofile(calls.see)
    try:
        yield calls
    finally:
        sys.setprofile(None)
        gc.enable()


@contextmanager
def calls_within(calls_max: int) -> Generator[None]:
    """Assert that the block makes at most so many calls."""
    with counted_calls() as calls:
        yield
    assert calls.count <= calls_max, f"{calls.count:,} calls of functions"


def calls_of(call: Callable[[], object]) -> int:
    """Number of calls that `call` makes, itself included. Refusals are ignored."""
    with counted_calls() as calls, suppress(*REFUSALS):
        call()
    return calls.count
