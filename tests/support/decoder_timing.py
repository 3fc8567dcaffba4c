"""Measure the time of a decoder for each hostile shape. As a program: measure one decoder and print its faults.

A process that has run thousands of tests has a heap in which a large allocation may take milliseconds, so a fault must
show in a fresh process too.
"""

from __future__ import annotations

import gc
import json
import subprocess
import sys
from functools import partial

from cpu_time import cpu_seconds, slowness
from decoders import DECODERS, Decoder
from hostile import PIECES, Shape

# On the event loop no other request is answered meanwhile.
LOOP_SECONDS_MAX = 0.020
# What takes less than this is not measured twice: a quadratic decoder cannot be as quick at full size, and what fits a
# cache by half only takes longer than twice as long on a machine that has other work.
FLOOR_SECONDS = 0.012
RATIO_MAX = 2.5
# What a pause of the machine adds, on an idle one.
PAUSE_SECONDS = 0.003


def faults_of(decoder: Decoder) -> list[str]:
    """Faults in the times of `decoder`, here and in a fresh process."""
    return _faults_in_fresh_process(decoder) if _faults_here(decoder) else []


def _faults_here(decoder: Decoder) -> list[str]:
    # The objects of a test run are many; a service has few, and freezes those of its start.
    gc.collect()
    gc.disable()
    shapes = [Shape(head, piece, tail) for piece in PIECES for head, tail in decoder.frames]
    found = [fault for shape in shapes for fault in _faults(decoder, shape)]
    gc.enable()
    return found


def _faults_in_fresh_process(decoder: Decoder) -> list[str]:
    command = [sys.executable, __file__, decoder.name]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    found: list[str] = json.loads(done.stdout)
    return found


def _faults(decoder: Decoder, shape: Shape) -> list[str]:
    """Faults in the time of reading `shape`, confirmed by a second measurement."""
    full = shape.of(decoder.size)
    found: list[str] = []
    for runs in (1, 3, 10):
        seconds = cpu_seconds(partial(decoder.read, full), runs)
        if seconds <= FLOOR_SECONDS:
            return []
        found = []
        if ratio := _excess(decoder, shape, seconds, runs):
            found.append(f"{shape}: {ratio:.1f} times as long at twice the size")
        if decoder.is_on_loop and _is_over(seconds, LOOP_SECONDS_MAX):
            found.append(f"{shape}: {seconds * 1000:.1f} ms on the event loop")
        if not found:
            break
    return found


def _excess(decoder: Decoder, shape: Shape, seconds: float, runs: int) -> float | None:
    """How many times as long as the slowest half the whole takes, which is too many times; or nothing.

    One half that takes long enough decides. A piece of 4,000 bytes has as many halves.
    """
    slowest = 0.0
    for half in shape.halves(decoder.size):
        slowest = max(slowest, cpu_seconds(partial(decoder.read, half), runs))
        if seconds <= RATIO_MAX * slowest + PAUSE_SECONDS:
            return None
    return seconds / slowest if _is_over(seconds - RATIO_MAX * slowest, PAUSE_SECONDS) else None


def _is_over(seconds: float, seconds_max: float) -> bool:
    """Whether it is more than `seconds_max` on an idle machine. Only what is more on this one needs its slowness."""
    return seconds > seconds_max and seconds > seconds_max * slowness()


if __name__ == "__main__":
    (chosen,) = (each for each in DECODERS if each.name == sys.argv[1])
    sys.stdout.write(json.dumps(_faults_here(chosen)))
