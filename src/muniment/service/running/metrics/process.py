"""The metrics of a process itself, and the task that shows its gauges to the other processes."""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from muniment.service.running.metrics.recorder import Metrics

# Seconds between two updates. The process that answers GET /metrics updates its own gauges first.
_LOOK_SECONDS: Final = 1.0
# Counting thousands of open descriptors takes milliseconds.
_PROCESS_LOOKS: Final = 15
_OWN: Final = Path("/proc/self")


async def show_gauges(metrics: Metrics) -> None:
    """Show the gauges of this process until it is cancelled."""
    own = _Process(metrics)
    looks = 0
    while True:
        metrics.refresh()
        if looks % _PROCESS_LOOKS == 0:
            own.look()
        looks += 1
        await asyncio.sleep(_LOOK_SECONDS)


class _Process:
    """CPU time, memory and descriptors of this process; the last two where the system has `/proc`."""

    def __init__(self, metrics: Metrics) -> None:
        self._cpu = metrics.gauge("process_cpu_seconds_total", worker=metrics.worker)
        self._memory = metrics.gauge("process_resident_memory_bytes", worker=metrics.worker)
        self._descriptors = metrics.gauge("process_open_fds", worker=metrics.worker)
        metrics.gauge("process_start_time_seconds", worker=metrics.worker).set(_started_s())

    def look(self) -> None:
        self._cpu.set(time.process_time())
        with suppress(OSError):  # the system has no /proc
            pages = int((_OWN / "statm").read_text().split()[1])  # proc(5): the second number is the resident set
            self._memory.set(pages * os.sysconf("SC_PAGE_SIZE"))
            self._descriptors.set(sum(1 for _ in (_OWN / "fd").iterdir()))


def _started_s() -> float:
    """The start of this process, in seconds since 1970; where the system has no /proc, the start of its metrics."""
    with suppress(OSError, StopIteration):
        ticks = int((_OWN / "stat").read_text().rpartition(")")[2].split()[19])  # proc(5): since the machine started
        lines = Path("/proc/stat").read_text().splitlines()
        booted_s = next(int(line.split()[1]) for line in lines if line.startswith("btime "))
        return booted_s + ticks / os.sysconf("SC_CLK_TCK")
    return time.time()
