"""Processes of `muniment` that need not load it: they are forked by one that has (`warm_server.py`).

The load is most of what a start takes, half a second of a core. What is forked is the command, with its own session,
arguments, environment, directory and descriptors. A test of the interpreter, of another program or of variables that an
interpreter reads starts a process of its own.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import IO

# What the interpreter, its loader or its allocator read before the command begins.
_READ_AT_START = ("PYTHON", "LD_", "MALLOC_", "FAKETIME")
# What Python runs first in a process that is not to find itself overloaded.
UNHURRIED = Path(__file__).with_name("unhurried")
_ENVIRONMENT = {**os.environ, "PYTHONPATH": str(UNHURRIED)}


class WarmProcess:
    """What the tests use of `subprocess.Popen`, of a process that somebody else has forked."""

    def __init__(self, pid: int, told: int, stdout: IO[str]) -> None:
        """`told` is where the end of the process is told."""
        self.pid = pid
        self.stdout = stdout
        self.returncode: int | None = None
        self._told = told

    def poll(self) -> int | None:
        """The exit status, the number of a signal with a minus, None while it runs."""
        if self.returncode is None and select.select([self._told], [], [], 0)[0]:
            self._read()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """The same at its end; raises `TimeoutExpired`."""
        if self.returncode is None:
            if not select.select([self._told], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired("muniment", timeout or 0)
            self._read()
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """Send SIGTERM, unless it has ended."""
        self.send_signal(signal.SIGTERM)

    def _read(self) -> None:
        self.returncode = int(os.read(self._told, 16))
        os.close(self._told)


def is_possible(environment: Mapping[str, str]) -> bool:
    """Whether a forked process is what a started one would be."""
    return hasattr(os, "pidfd_open") and _read_at_start(environment) == _read_at_start(_ENVIRONMENT)


def _read_at_start(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith(_READ_AT_START)}


def popen(words: Sequence[str], environment: Mapping[str, str]) -> WarmProcess:
    """`muniment WORDS`, with a pipe as its standard output."""
    reading, writing = os.pipe()
    told, telling = os.pipe()
    mask = os.umask(0)
    os.umask(mask)
    request = {
        "arguments": ["muniment", *words],
        "environment": dict(environment),
        "directory": str(Path.cwd()),
        "umask": mask,
    }
    nothing = os.open(os.devnull, os.O_RDONLY)
    socket.send_fds(_server(), [json.dumps(request).encode()], [nothing, writing, 2, telling])
    for descriptor in (nothing, writing, telling):
        os.close(descriptor)
    pid = b""
    while not pid.endswith(b"\n"):
        pid += os.read(told, 1)
    return WarmProcess(int(pid), told, open(reading, encoding="utf-8"))  # noqa: PTH123 - its owner closes it


@cache
def _server() -> socket.socket:
    """The end of the socket at which the process that forks is asked; it ends when this process closes it."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    program = Path(__file__).with_name("warm_server.py")
    process = subprocess.Popen(
        [sys.executable, program, str(theirs.fileno())],
        env=_ENVIRONMENT,
        pass_fds=[theirs.fileno()],
        stdin=subprocess.DEVNULL,
    )
    theirs.close()
    atexit.register(_end, ours, process)
    return ours


def _end(control: socket.socket, process: subprocess.Popen[bytes]) -> None:
    control.close()
    process.wait()
