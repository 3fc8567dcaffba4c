"""The service as its users run it: processes of its own, on a free port of this machine, stopped by their ids."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import httpx

START_SECONDS_MAX = 30


class Service:
    """`muniment serve` on a data directory."""

    def __init__(
        self,
        data_dir: Path,
        *,
        workers: int = 1,
        port: int = 0,
        program: Sequence[str] = ("-m", "muniment"),
        environment: dict[str, str] | None = None,
    ) -> None:
        self.data_dir = data_dir
        self._command = [
            sys.executable, *program, "serve", "--port", str(port), "--host", "127.0.0.1",
            "--data-dir", str(data_dir), "--workers", str(workers),
        ]  # fmt: skip
        self._environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("MUNIMENT_")},
            "MUNIMENT_LOG_LEVEL": "warning",
            **(environment or {}),
        }
        self.process: subprocess.Popen[str] | None = None
        self.url = ""

    def start(self) -> Self:
        self.launch()
        self.wait_until_ready()
        return self

    def launch(self) -> None:
        """Start, and wait for nothing."""
        self.process = subprocess.Popen(
            self._command, env=self._environment, stdout=subprocess.PIPE, text=True, start_new_session=True
        )

    def launch_and_listen(self) -> Self:
        """Start, and wait until it says where it listens; it may not be ready."""
        self.launch()
        self._read_url()
        return self

    def _read_url(self) -> None:
        assert self.process is not None
        assert self.process.stdout is not None
        said = self.process.stdout.readline()
        assert "listens on " in said, f"the service did not start: {said!r}"
        self.url = said.partition("listens on ")[2].split()[0]

    def wait_until_ready(self) -> None:
        self._read_url()
        deadline = time.monotonic() + START_SECONDS_MAX
        while True:
            try:
                if httpx.get(f"{self.url}/readyz", timeout=5).status_code == 200:
                    return
            except httpx.TransportError:
                pass
            assert time.monotonic() < deadline, "the service is not ready"
            time.sleep(0.02)

    @property
    def pid(self) -> int:
        """Of the only process, or of the one that supervises the workers."""
        assert self.process is not None
        return self.process.pid

    def worker_pids(self) -> set[int]:
        """The processes that serve, when there are several."""
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
        return {int(pid) for pid in children if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()}

    def kill(self) -> None:
        """SIGKILL to every process of the service."""
        assert self.process is not None
        os.killpg(self.process.pid, signal.SIGKILL)
        self.wait()

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal to the first process, as an operator or a supervisor does; the exit status."""
        assert self.process is not None
        self.process.send_signal(number)
        return self.wait()

    def wait(self) -> int:
        """Wait for the end; the exit status."""
        assert self.process is not None
        assert self.process.stdout is not None
        status = self.process.wait(timeout=40)
        self.process.stdout.close()
        self.process = None
        return status

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.kill()  # nobody will come to `__exit__`
            raise

    def __exit__(self, *_: object) -> None:
        if self.process is not None:
            self.stop()
