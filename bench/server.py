"""A server process: started, loaded from another process, its CPU time read, stopped."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

HERE = Path(__file__).parent
CONNECTIONS = 32
_LOAD_SECONDS_MAX = 60
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Load:
    """What one run of the load generator has cost."""

    requests: int
    wall_seconds: float
    cpu_seconds: float


class Server:
    """A command that says `listens on URL` when its port is open."""

    def __init__(self, *command: str) -> None:
        self._command = [sys.executable, *command]

    def __enter__(self) -> Self:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("MUNIMENT_")}
        environment["MUNIMENT_LOG_LEVEL"] = "warning"
        self._process = subprocess.Popen(self._command, stdout=subprocess.PIPE, text=True, env=environment)
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
        self._process.wait(timeout=30)
        self._process.stdout.close()

    def cpu_seconds(self) -> float:
        """User and system time of the process with all its threads (proc(5), fields 14 and 15)."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text("ascii").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS_PER_SECOND

    def load(self, requests: list[bytes]) -> Load:
        """Send each request once; every answer must be 200."""
        port = self.url.rpartition(":")[2]
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump([base64.b64encode(each).decode() for each in requests], file)
            file.flush()
            before = self.cpu_seconds()
            command = [sys.executable, str(HERE / "load.py"), port, str(CONNECTIONS), file.name]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, timeout=_LOAD_SECONDS_MAX)
            spent = self.cpu_seconds() - before
        said = json.loads(done.stdout)
        assert said["failed"] == 0, said["first"]
        return Load(len(requests), said["seconds"], spent)


def get(target: str) -> bytes:
    return f"GET {target} HTTP/1.1\r\nhost: 127.0.0.1\r\naccept: application/json\r\n\r\n".encode()


def post(target: str, body: bytes) -> bytes:
    head = f"POST {target} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
    return f"{head}content-length: {len(body)}\r\n\r\n".encode() + body
