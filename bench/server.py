"""A server process: started, loaded from another process, its CPU time read, stopped."""

from __future__ import annotations

import base64
import ctypes
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

HERE = Path(__file__).parent
CONNECTIONS = 32
_LOAD_SECONDS_MAX = 120
_libc = ctypes.CDLL(None)


@dataclass(frozen=True)
class Load:
    """What one run of the load generator has cost: by the clock, and of all the server's processes' CPU time.

    `busiest_seconds` is the CPU time of the process that used most: with several, it is the first to be full.
    """

    requests: int
    wall_seconds: float
    cpu_seconds: float
    busiest_seconds: float

    @property
    def per_cpu_second(self) -> float:
        """Requests per second of the server's CPU time."""
        return self.requests / self.cpu_seconds

    @property
    def per_wall_second(self) -> float:
        """Requests per second by the clock."""
        return self.requests / self.wall_seconds


class Server:
    """A command that says `listens on URL` when its port is open."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        self._command = command
        self._environment = {name: value for name, value in os.environ.items() if not name.startswith("MUNIMENT_")}
        self._environment |= {
            "MUNIMENT_LOG_LEVEL": "warning",
            "MUNIMENT_RATE_LIMIT_OWNER": "off",
            "NODE_ENV": "production",
            **(environment or {}),
        }

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(self._command, stdout=subprocess.PIPE, text=True, env=self._environment)
        assert self._process.stdout is not None
        said = self._process.stdout.readline()
        assert "listens on " in said, f"{self._command} did not start: {said!r}"
        self.url = said.partition("listens on ")[2].split()[0]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdout is not None
        self._process.terminate()
        self._process.wait(timeout=60)
        self._process.stdout.close()

    @property
    def pid(self) -> int:
        """The process that was started."""
        return self._process.pid

    def cpu_seconds(self) -> dict[int, float]:
        """User and system time, all threads, of the process and of its workers."""
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text("ascii").split()
        return {each: _cpu_seconds(each) for each in (self.pid, *map(int, children))}

    def spent_since(self, before: Mapping[int, float]) -> list[float]:
        """CPU seconds of each process since `cpu_seconds` said `before`; workers may have started meanwhile."""
        return [after - before.get(pid, 0.0) for pid, after in self.cpu_seconds().items()]

    @contextmanager
    def confined(self, core: int) -> Generator[None]:
        """Keep every thread of the process on one core, and let them go again."""
        everywhere = os.sched_getaffinity(0)
        self._confine({core})
        try:
            yield
        finally:
            self._confine(everywhere)

    def _confine(self, cores: set[int]) -> None:
        for thread in Path(f"/proc/{self.pid}/task").iterdir():
            with suppress(ProcessLookupError):  # it has ended
                os.sched_setaffinity(int(thread.name), cores)

    def load(self, requests: list[bytes]) -> Load:
        """Send each request once; every answer must be 200."""
        port = self.url.rpartition(":")[2]
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump([base64.b64encode(each).decode() for each in requests], file)
            file.flush()
            before = self.cpu_seconds()
            command = [sys.executable, str(HERE / "load.py"), port, str(CONNECTIONS), file.name]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, timeout=_LOAD_SECONDS_MAX)
            spent = self.spent_since(before)
        said = json.loads(done.stdout)
        assert said["failed"] == 0, said["first"]
        return Load(len(requests), said["seconds"], sum(spent), max(spent))


def _cpu_seconds(pid: int) -> float:
    """The CPU time of a process, threads that have ended included, by its own clock: it counts nanoseconds.

    clock_getcpuclockid(3). In /proc the same time is in ticks of a hundredth of a second, or of living threads only.
    """
    clock = ctypes.c_int()
    failure = _libc.clock_getcpuclockid(pid, ctypes.byref(clock))
    if failure:
        raise OSError(failure, os.strerror(failure))
    return time.clock_gettime_ns(clock.value) / 1e9


def get(target: str) -> bytes:
    return f"GET {target} HTTP/1.1\r\nhost: 127.0.0.1\r\naccept: application/json\r\n\r\n".encode()


def post(target: str, body: bytes, content_type: str = "application/json", more: str = "") -> bytes:
    """A POST; `more` is further header lines, each with its end."""
    head = f"POST {target} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: {content_type}\r\n{more}"
    return f"{head}content-length: {len(body)}\r\n\r\n".encode() + body
