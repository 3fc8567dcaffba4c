"""Processes of `muniment` forked by one that has loaded it already (`warm_server.py`).

Loading is most of a start, half a second of a core. The forked command has its own session,
arguments, environment, directory and descriptors. A test of the interpreter, of another program or of variables that an
interpreter reads starts a process of its own.
"""

from __future__ import annotations

import atexit
import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import IO

# What the interpreter, its loader or its allocator read before the command begins.
_READ_AT_START = ("PYTHON", "LD_", "MALLOC_", "FAKETIME")
# What Python runs first in a process that is not to find itself overloaded.
UNHURRIED = Path(__file__).with_name("unhurried")
_ENVIRONMENT = {**os.environ, "PYTHONPATH": str(UNHURRIED)}
# What the interpreter is told to run; or `-c` and a text, or the path of a file.
_MUNIMENT = ("-m", "muniment")


class WarmProcess:
    """The used part of `subprocess.Popen`, for a process that another one has forked."""

    def __init__(self, pid: int, exit_pipe: int, stdout: IO[str] | None, stderr: IO[str] | None = None) -> None:
        """`exit_pipe` reports the end of the process; its outputs are None unless they are pipes."""
        self.pid = pid
        self.stdout = stdout
        self.stderr = stderr
        self.returncode: int | None = None
        self._exit_pipe = exit_pipe

    def poll(self) -> int | None:
        """The exit status, the number of a signal with a minus, None while it runs."""
        if self.returncode is None and self._has_ended(0):
            self._read()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """The same at its end; raises `TimeoutExpired`."""
        if self.returncode is None:
            if not self._has_ended(timeout):
                raise subprocess.TimeoutExpired("muniment", timeout or 0)
            self._read()
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            with suppress(ProcessLookupError):  # it has ended since
                os.kill(self.pid, number)

    def terminate(self) -> None:
        """Send SIGTERM, unless it has ended."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL, unless it has ended."""
        self.send_signal(signal.SIGKILL)

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """The rest of its outputs, at its end; raises `TimeoutExpired` and kills it."""
        pipes = (self.stdout, self.stderr)
        with ThreadPoolExecutor(2) as readers:
            texts = [readers.submit(each.read) if each and not each.closed else None for each in pipes]
            try:
                self.wait(timeout)
            except subprocess.TimeoutExpired:
                self.kill()
                raise
            out, error = (each.result() if each else "" for each in texts)
        for each in pipes:
            if each:
                each.close()
        return out, error

    def _has_ended(self, timeout: float | None) -> bool:
        poll = select.poll()  # takes descriptors above 1,023, which select does not
        poll.register(self._exit_pipe, select.POLLIN)
        return bool(poll.poll(None if timeout is None else timeout * 1000))

    def _read(self) -> None:
        status = os.read(self._exit_pipe, 16)
        os.close(self._exit_pipe)
        if not status:  # the forking process has ended, so the end of this one is unknown
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
        self.returncode = int(status or -signal.SIGKILL)


def is_possible(environment: Mapping[str, str]) -> bool:
    """Whether a forked process behaves like a started one."""
    return hasattr(os, "pidfd_open") and _read_at_start(environment) == _read_at_start(_ENVIRONMENT)


def _read_at_start(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith(_READ_AT_START)}


def popen(
    words: Sequence[str],
    environment: Mapping[str, str],
    program: Sequence[str] = _MUNIMENT,
    *,
    stdin: int | None = None,
    stdout: int = subprocess.PIPE,
    stderr: int = 2,
    directory: Path | None = None,
) -> WarmProcess:
    """Start `muniment WORDS`, or another program; its files are descriptors, or pipes. `directory` is where."""
    readers: list[IO[str] | None] = []
    ends: list[int] = []
    for given in (stdout, stderr):
        if given != subprocess.PIPE:
            readers.append(None)
            ends.append(given)
            continue
        reading, writing = os.pipe()
        readers.append(open(reading, encoding="utf-8"))  # noqa: PTH123, SIM115 - its owner closes it
        ends.append(writing)
    with Path(os.devnull).open("rb") as nothing:
        files = [nothing.fileno() if stdin is None else stdin, *ends]
        pid, exit_pipe = _forked(words, environment, files, directory, program)
    for given, end in zip((stdout, stderr), ends, strict=True):
        if given == subprocess.PIPE:
            os.close(end)
    return WarmProcess(pid, exit_pipe, *readers)


def run(
    *words: str | Path,
    program: Sequence[str] = _MUNIMENT,
    data: Path | None = None,
    directory: Path | None = None,
    timeout: float = 120,
    environment: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Output and status of `muniment WORDS`, with `environment` instead of the settings of this process.

    `program` is what runs instead of Muniment: `-c` and a text, or the path of a file.

    `data` is its data directory, `directory` where it is started. After `timeout` seconds it is killed, and
    `TimeoutExpired` raised.
    """
    clean = {name: value for name, value in os.environ.items() if not name.startswith("MUNIMENT_")}
    settings = {**clean, "PYTHONPATH": str(UNHURRIED), **(environment or {})}
    all_words = [*map(str, words), *(() if data is None else ("--data-dir", str(data)))]
    if not is_possible(settings):
        command = [sys.executable, *program, *all_words]
        return subprocess.run(
            command, env=settings, cwd=directory, capture_output=True, text=True, timeout=timeout, check=False
        )
    with _file() as out, _file() as error, Path(os.devnull).open("rb") as nothing:
        files = [nothing.fileno(), out.fileno(), error.fileno()]
        pid, exit_pipe = _forked(all_words, settings, files, directory, program)
        process = WarmProcess(pid, exit_pipe, None)
        try:
            status = process.wait(timeout)
        except BaseException:
            process.send_signal(signal.SIGKILL)
            process.wait()
            raise
        for each in (out, error):
            each.seek(0)
        return subprocess.CompletedProcess(["muniment", *all_words], status, out.read(), error.read())


def _file() -> IO[str]:
    return tempfile.TemporaryFile("w+", encoding="utf-8")


def _forked(
    words: Sequence[str],
    environment: Mapping[str, str],
    descriptors: list[int],
    directory: Path | None = None,
    program: Sequence[str] = _MUNIMENT,
) -> tuple[int, int]:
    """Id of a new process with these standard files, and the descriptor that reports its end."""
    exit_pipe, exit_end = os.pipe()
    mask = re.search(r"^Umask:\s*([0-7]+)$", Path("/proc/self/status").read_text(), re.MULTILINE)
    assert mask is not None
    request = {
        "program": [*program],
        "arguments": ["muniment" if program[0] == "-m" else program[0], *words],
        "environment": dict(environment),
        "directory": str(directory or Path.cwd()),
        "umask": int(mask[1], 8),  # os.umask would change it for a moment, for every thread
    }
    socket.send_fds(_server(), [json.dumps(request).encode()], [*descriptors, exit_end])
    os.close(exit_end)
    pid = b""
    while not pid.endswith(b"\n"):
        pid += (piece := os.read(exit_pipe, 1))
        assert piece, "the process that forks has ended"
    return int(pid), exit_pipe


@cache
def _server() -> socket.socket:
    """Socket of the forking process; that process ends when the socket is closed."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    program = Path(__file__).with_name("warm_server.py")
    process = subprocess.Popen(
        [sys.executable, program, str(theirs.fileno())],
        env=_ENVIRONMENT,
        pass_fds=[theirs.fileno()],
        stdin=subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C ends the tests, and they their services
    )
    theirs.close()
    atexit.register(_end, ours, process)
    return ours


def _end(control: socket.socket, process: subprocess.Popen[bytes]) -> None:
    control.close()
    process.wait()
