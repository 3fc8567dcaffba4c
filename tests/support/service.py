"""The service as a process on a free port of this machine, stopped by its id."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

import httpx2

import warm
from ports import free_port

# These end a hang: a busy machine, or one whose disk stands still for a while, is no fault of the service.
START_SECONDS_MAX = 60
STOP_SECONDS_MAX = 90
# The `program` of a test about what a process sets up by itself: it is not forked.
LOADED_ANEW = ("-c", "from muniment.__main__ import main; main()")
# Of services that share a database: what one of them signs, the others take.
SHARED_SECRET = "5e" * 32


class Service:
    """`muniment serve` on a data directory.

    Unless `sheds`, it does not shed load when the machine is slow: see `unhurried/sitecustomize.py`.
    """

    def __init__(
        self,
        data_dir: Path,
        *,
        port: int | None = None,
        host: str = "127.0.0.1",
        program: Sequence[str] = ("-m", "muniment"),
        environment: dict[str, str] | None = None,
        python: Path = Path(sys.executable),
        sheds: bool = False,
    ) -> None:
        self.data_dir = data_dir
        self._program = [str(python), *program]
        self._port = port
        self._words = ["serve", "--host", host, "--data-dir", str(data_dir)]
        # Its settings.
        self.environment = {
            "MUNIMENT_LOG_LEVEL": "warning",
            "MUNIMENT_RATE_LIMIT_CLIENT": "off",  # tests ask as much as they can
            "MUNIMENT_RATE_LIMIT_LOGIN": "off",
            "MUNIMENT_RATE_LIMIT_STOP": "off",
            "MUNIMENT_RATE_LIMIT_OWNER": "off",  # one wallet signs thousands of triggers
            **({} if sheds else {"PYTHONPATH": str(warm.UNHURRIED)}),
            **(environment or {}),
        }
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("MUNIMENT_")}
        self._all_variables = inherited | self.environment
        self.process: subprocess.Popen[str] | warm.WarmProcess | None = None
        self.url = self.said = ""

    def start(self) -> Self:
        self.launch()
        self.wait_until_ready()
        return self

    def launch(self) -> None:
        """Start without waiting."""
        python, *program = self._program
        # Not any port that Linux gives: once this service has ended, nobody else answers at its URL by chance.
        words = [*self._words, "--port", str(free_port() if self._port is None else self._port)]
        # A text is given to the interpreter by tests of how it starts.
        if python == sys.executable and program[0] != "-c" and warm.is_possible(self._all_variables):
            self.process = warm.popen(words, self._all_variables, program)
            return
        self.process = subprocess.Popen(
            [*self._program, *words],
            env=self._all_variables, stdout=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip

    def launch_and_listen(self) -> Self:
        """Start, and wait until it prints where it listens; it may not be ready."""
        self.launch()
        self._read_url()
        return self

    def _read_url(self) -> None:
        assert self.process is not None
        assert self.process.stdout is not None
        self.said = self.process.stdout.readline()
        assert "listens on " in self.said, f"the service did not start: {self.said!r}"
        self.url = self.said.partition("listens on ")[2].split()[0]

    def wait_until_ready(self) -> None:
        """Wait until it is ready."""
        self._read_url()
        deadline = time.monotonic() + START_SECONDS_MAX
        while not self._is_ready():
            assert time.monotonic() < deadline, "the service is not ready"
            time.sleep(0.02)

    def _is_ready(self) -> bool:
        try:
            return httpx2.get(f"{self.url}/readyz").status_code == 200
        except httpx2.TransportError:
            return False

    def connect(self) -> socket.socket:
        """A raw connection."""
        where = urlsplit(self.url)
        return socket.create_connection((where.hostname or "", where.port or 0), timeout=60)

    @property
    def pid(self) -> int:
        """Id of the process."""
        assert self.process is not None
        return self.process.pid

    def operator_key(self) -> str:
        """A new operator's key."""
        return self.run("operators", "add", "tests")

    def run(self, *words: str) -> str:
        """Output of `muniment WORDS` with the settings of the service; it must succeed."""
        done = warm.run(*words, data=self.data_dir, timeout=START_SECONDS_MAX, environment=self.environment)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout.strip()

    def kill(self) -> None:
        """Kill the process, and those that it started; returns once all have ended and the port is free."""
        group = self.pid
        os.killpg(group, signal.SIGKILL)
        self.wait()
        deadline = time.monotonic() + STOP_SECONDS_MAX
        while _is_alive(group):
            assert time.monotonic() < deadline, "a process does not end"
            time.sleep(0.005)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal; the exit status."""
        assert self.process is not None
        self.process.send_signal(number)
        return self.wait()

    def wait(self) -> int:
        """Wait for the end; the exit status."""
        assert self.process is not None
        assert self.process.stdout is not None
        status = self.process.wait(timeout=STOP_SECONDS_MAX)
        self.process.stdout.close()
        self.process = None
        return status

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.kill()  # `__exit__` will not run
            raise

    def __exit__(self, *_: object) -> None:
        if self.process is not None:
            self.stop()


def services_of(folder: Path, database_url: str, count: int = 2, **environment: str) -> list[Service]:
    """Services of one PostgreSQL database, each with a data directory of its own; none is started."""
    settings = {"MUNIMENT_DATABASE_URL": database_url, "MUNIMENT_SECRET": SHARED_SECRET, **environment}
    folders = [folder / f"data{number}" for number in range(1, count + 1)]
    return [Service(each, port=free_port(), environment=settings) for each in folders]


def _read(path: str) -> bytes:
    """Content of a file of proc(5); empty when its process is gone."""
    try:
        return Path(path).read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


def is_there(pid: int) -> bool:
    """Whether the process has not ended."""
    return _state_and_group(pid)[0] not in {"", "Z", "X"}


def _is_alive(group: int) -> bool:
    """Whether a process of the group runs; one that has ended may still be a zombie."""
    pids = (int(each.name) for each in Path("/proc").iterdir() if each.name.isdigit())
    return any(at == str(group) and state not in {"Z", "X"} for state, at in map(_state_and_group, pids))


def _state_and_group(pid: int) -> tuple[str, str]:
    _, _, after_name = _read(f"/proc/{pid}/stat").decode(errors="replace").rpartition(")")
    state, _, group, *_ = [*after_name.split(), "", "", ""]
    return state, group
