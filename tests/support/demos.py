"""`muniment demo` as a process."""

from __future__ import annotations

import os
import signal
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import warm


@contextmanager
def demo(directory: Path, *options: str, **environment: str) -> Generator[tuple[warm.WarmProcess, str]]:
    """A demo that has walked through its service, with the URL of this."""
    unhurried = {**os.environ, **environment, "PYTHONPATH": str(warm.UNHURRIED)}  # for the service that it starts
    process = warm.popen(["demo", "--data-dir", str(directory / "data"), "--port", "0", *options], unhurried)
    assert process.stdout is not None
    try:
        said = ""
        while "Ctrl-C" not in said:
            line = process.stdout.readline()
            assert line, said
            said += line
        yield process, said.partition("listens on ")[2].split()[0]
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
