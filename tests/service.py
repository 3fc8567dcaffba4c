"""The service as its users run it: a process of its own, on a free port of this machine, stopped by its id."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Self

import httpx

START_SECONDS_MAX = 30


class Service:
    """`muniment serve` on a data directory."""

    def __init__(self, data_dir: Path, *, workers: int = 1, environment: dict[str, str] | None = None) -> None:
        self.data_dir = data_dir
        self._workers = workers
        self._environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("MUNIMENT_")},
            "MUNIMENT_LOG_LEVEL": "warning",
            **(environment or {}),
        }
        self.process: subprocess.Popen[str] | None = None
        self.url = ""

    def start(self) -> Self:
        command = [
            sys.executable, "-m", "muniment", "serve", "--port", "0", "--host", "127.0.0.1",
            "--data-dir", str(self.data_dir), "--workers", str(self._workers),
        ]  # fmt: skip
        self.process = subprocess.Popen(
            command, env=self._environment, stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        assert self.process.stdout is not None
        said = self.process.stdout.readline()
        assert "listens on " in said, f"the service did not start: {said!r}"
        self.url = said.partition("listens on ")[2].split()[0]
        self._wait_until_ready()
        return self

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + START_SECONDS_MAX
        while True:
            try:
                if httpx.get(f"{self.url}/readyz", timeout=5).status_code == 200:
                    return
            except httpx.TransportError:
                pass
            assert time.monotonic() < deadline, "the service is not ready"
            time.sleep(0.02)

    def kill(self) -> None:
        """SIGKILL to every process of the service."""
        assert self.process is not None
        os.killpg(self.process.pid, signal.SIGKILL)
        self._close()

    def stop(self) -> int:
        """SIGTERM, as an operator or a supervisor sends it; the exit status."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self._close()

    def _close(self) -> int:
        assert self.process is not None
        assert self.process.stdout is not None
        status = self.process.wait(timeout=40)
        self.process.stdout.close()
        self.process = None
        return status

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        if self.process is not None:
            self.stop()
