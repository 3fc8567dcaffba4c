"""`muniment events follow` as a process, and its output."""

from __future__ import annotations

import atexit
import fcntl
import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import httpx2

import warm
from service import Service
from warm import WarmProcess

SECONDS_MAX = 60.0
_started: list[WarmProcess] = []


def follower(
    service: Service,
    *options: str | Path,
    stdout: IO[str] | int = subprocess.PIPE,
    stderr: IO[str] | int = subprocess.PIPE,
    pipe_bytes: int | None = None,
) -> WarmProcess:
    """A new follower of the events of a service; `pipe_bytes` is how much its standard output holds."""
    out, error = (each if isinstance(each, int) else each.fileno() for each in (stdout, stderr))
    environment = os.environ | {"PYTHONPATH": str(warm.UNHURRIED)}
    words = ["events", "follow", "--url", service.url, *map(str, options)]
    process = warm.popen(words, environment, stdout=out, stderr=error)
    if pipe_bytes is not None:
        assert process.stdout is not None
        fcntl.fcntl(process.stdout, fcntl.F_SETPIPE_SZ, pipe_bytes)
    _started.append(process)
    return process


@atexit.register
def _end_the_rest() -> None:
    """End followers that a failed test has left."""
    for process in _started:
        process.kill()


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def lines(path: Path) -> list[dict[str, Any]]:
    """Events in a file of JSON lines, without an unfinished line."""
    text = path.read_text() if path.exists() else ""
    return [json.loads(line) for line in text.splitlines() if line.endswith("}")]


def subjects(path: Path) -> list[str]:
    return [each["subject"] for each in lines(path)]


def until_count(path: Path, count: int) -> None:
    until(lambda: len(lines(path)) == count)


def until_at_the_end(url: str, state: Path) -> None:
    """Wait until the position that a follower has stored is after the last event of the service."""

    def is_at_the_end() -> bool:
        found = re.search(r'cursor(?:=|": ?")([A-Za-z0-9_-]+)', state.read_text())
        return found is not None and httpx2.get(f"{url}/events?cursor={found[1]}").json() == []

    until(is_at_the_end)


def ended(process: WarmProcess, number: signal.Signals = signal.SIGTERM) -> tuple[int, str]:
    """Exit status after a signal, and standard error."""
    process.send_signal(number)
    _, said = process.communicate(timeout=SECONDS_MAX)
    return process.wait(), said
