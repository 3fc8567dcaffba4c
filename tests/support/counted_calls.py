"""Work that is counted and not timed: the calls of functions, ours and those of C. They are as many on every machine.

What one call of a C function does is not seen: whether that takes long is left to the tests marked `long`, which time.
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
    """How many there were in this thread."""

    count: int = 0

    def see(self, frame: Any, event: str, argument: Any) -> None:
        del frame, argument
        if event in {"call", "c_call"}:
            self.count += 1


@contextmanager
def counted_calls() -> Generator[Calls]:
    """Count the calls inside. Nothing is collected meanwhile: whose turn that is depends on what ran before."""
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
    """What is inside makes at most so many calls."""
    with counted_calls() as calls:
        yield
    assert calls.count <= calls_max, f"{calls.count:,} calls of functions"


def calls_of(call: Callable[[], object]) -> int:
    """How many calls it makes, itself included. What it refuses, it refuses."""
    with counted_calls() as calls, suppress(*REFUSALS):
        call()
    return calls.count
