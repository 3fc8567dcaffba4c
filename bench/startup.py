"""From the start of a command to what it is for: the first answer of `muniment serve`, and the text of `--help`."""

from __future__ import annotations

import http.client
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from ours import serve_command
from scale import Scale
from server import Server

SERVE, HELP = "muniment serve, to the first answer", "muniment --help"
_MUNIMENT = [sys.executable, "-m", "muniment"]


def measure(scale: Scale) -> dict[str, list[float]]:
    """Seconds by the clock of each start, in turns. A first one of each warms the file cache and is not counted."""
    seconds: dict[str, list[float]] = {SERVE: [], HELP: []}
    with tempfile.TemporaryDirectory() as folder:
        for number in range(scale.starts + 1):
            for name, taken in ((SERVE, _serve(folder)), (HELP, _help())):
                if number:
                    seconds[name].append(taken)
    return seconds


def _serve(folder: str) -> float:
    """Asked for as soon as the port is open, and again until the answer comes: connections wait to be accepted."""
    started = time.perf_counter()
    with Server(serve_command(Path(folder))) as service:
        connection = http.client.HTTPConnection("127.0.0.1", int(service.url.rpartition(":")[2]), timeout=60)
        connection.request("GET", "/healthz")
        assert connection.getresponse().status == 200
        taken = time.perf_counter() - started
        connection.close()
    return taken


def _help() -> float:
    started = time.perf_counter()
    subprocess.run([*_MUNIMENT, "--help"], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - started
