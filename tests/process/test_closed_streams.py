"""The service where a supervisor has closed its standard streams."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import httpx2

from ports import free_port
from service import START_SECONDS_MAX, STOP_SECONDS_MAX


def test_serve_without_standard_streams(tmp_path: Path) -> None:
    port = free_port()
    serve = [
        sys.executable, "-m", "muniment", "serve", "--port", str(port), "--data-dir", str(tmp_path),
    ]  # fmt: skip
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MUNIMENT_")}
    with subprocess.Popen(["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *serve], env=environment) as process:
        try:
            wait_until_ready(process, port)
            streams = [str(Path(f"/proc/{process.pid}/fd/{number}").readlink()) for number in range(3)]
            assert streams == [os.devnull] * 3
        finally:
            process.terminate()
        assert process.wait(STOP_SECONDS_MAX) == 0


def wait_until_ready(process: subprocess.Popen[bytes], port: int) -> None:
    deadline = time.monotonic() + START_SECONDS_MAX
    while process.poll() is None and time.monotonic() < deadline:
        try:
            if httpx2.get(f"http://127.0.0.1:{port}/readyz").status_code == 200:
                return
        except httpx2.TransportError:
            time.sleep(0.02)
    raise AssertionError(f"the service is not ready, its status is {process.poll()}")
