"""`muniment events follow` as a process, and its output."""

from __future__ import annotations

import atexit
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from service import Service

SECONDS_MAX = 60.0
_started: list[subprocess.Popen[str]] = []


def follower(service: Service, *options: str | Path, **how: Any) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "muniment", "events", "follow", "--url", service.url, *map(str, options)]
    how = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **how}
    process = subprocess.Popen(command, **how)
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


def until_written_after(path: Path, other: Path) -> None:
    """Wait until `path` is newer than `other`; file times have a resolution of milliseconds."""
    until(lambda: path.stat().st_mtime_ns >= other.stat().st_mtime_ns)
    time.sleep(0.1)


def ended(process: subprocess.Popen[str], number: int = signal.SIGTERM) -> tuple[int, str]:
    """Exit status after a signal, and standard error."""
    process.send_signal(number)
    _, said = process.communicate(timeout=SECONDS_MAX)
    return process.returncode, said
