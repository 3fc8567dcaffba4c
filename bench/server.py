"""A server process: started, loaded from another process, its CPU time read, stopped."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

HERE = Path(__file__).parent
CONNECTIONS = 32
_LOAD_SECONDS_MAX = 120
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


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
        self._environment |= {"MUNIMENT_LOG_LEVEL": "warning", "NODE_ENV": "production", **(environment or {})}

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

    def cpu_seconds(self) -> dict[int, float]:
        """User and system time, all threads, of the process and of its workers (proc(5), fields 14 and 15)."""
        pid = self._process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text("ascii").split()
        seconds = dict[int, float]()
        for each in (pid, *map(int, children)):
            fields = Path(f"/proc/{each}/stat").read_text("ascii").rpartition(")")[2].split()
            seconds[each] = (int(fields[11]) + int(fields[12])) / _TICKS_PER_SECOND
        return seconds

    def load(self, requests: list[bytes]) -> Load:
        """Send each request once; every answer must be 200."""
        port = self.url.rpartition(":")[2]
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump([base64.b64encode(each).decode() for each in requests], file)
            file.flush()
            before = self.cpu_seconds()
            command = [sys.executable, str(HERE / "load.py"), port, str(CONNECTIONS), file.name]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, timeout=_LOAD_SECONDS_MAX)
            spent = [after - before[pid] for pid, after in self.cpu_seconds().items()]
        said = json.loads(done.stdout)
        assert said["failed"] == 0, said["first"]
        return Load(len(requests), said["seconds"], sum(spent), max(spent))


def get(target: str) -> bytes:
    return f"GET {target} HTTP/1.1\r\nhost: 127.0.0.1\r\naccept: application/json\r\n\r\n".encode()


def post(target: str, body: bytes, content_type: str = "application/json", more: str = "") -> bytes:
    """A POST; `more` is further header lines, each with its end."""
    head = f"POST {target} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: {content_type}\r\n{more}"
    return f"{head}content-length: {len(body)}\r\n\r\n".encode() + body
