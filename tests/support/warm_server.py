"""Start `muniment` without import time: a process that has loaded it forks one for each command.

It is given one end of a socket pair. Each message is a request of `warm.py`, with four descriptors: standard input,
output and error of the new process, and the one that reports its end.
"""

from __future__ import annotations

import asyncio
import atexit
import gc
import importlib
import json
import os
import pkgutil
import runpy
import selectors
import signal
import socket
import sys
import traceback
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from patience import wait_a_minute

MESSAGE_BYTES_MAX = 1 << 20
# What commands load when they are called, so that the process that forks has it already.
_LOADED = (
    "muniment.__main__", "muniment.client", "muniment.cli", "muniment.operate", "muniment.service", "uvloop",
    "uvicorn.loops.uvloop", "uvicorn.lifespan.on", "anyio._backends._asyncio",
)  # fmt: skip
# What only some commands load, before the first of them is forked.
_LOADED_FOR = {
    "relayer": ("muniment.relayer.program", "muniment.guest.launcher"), "doctor": ("muniment.guest.launcher",),
    "launcher": ("muniment.guest.launcher",),
}  # fmt: skip

# A launcher has no environment, no directory and no output.
_LAUNCHER = """
import os
from muniment.guest.launcher import main
os.setsid()
os.environ.clear()
os.chdir("/")
nothing = os.open(os.devnull, os.O_RDWR)
for number in range(3):
    os.dup2(nothing, number)
os.close(nothing)
main({})
"""


def serve(control: socket.socket) -> dict[str, Any] | None:
    """Fork for each request: the request in a new process, None in this one when `warm.py` has ended."""
    selector = selectors.DefaultSelector()
    selector.register(control, selectors.EVENT_READ)
    while True:
        for key, _ in selector.select():
            if key.data is not None:
                selector.unregister(key.fd)
                _report_end(key.fd, *key.data)
                continue
            message, descriptors, _, _ = socket.recv_fds(control, MESSAGE_BYTES_MAX, 4)
            if not message:
                return None
            request: dict[str, Any] = json.loads(message)
            for name in _LOADED_FOR.get("".join(request["arguments"][1:2]), ()):
                importlib.import_module(name)
            if not (pid := os.fork()):
                selector.close()  # an object that closed its descriptor later would close another's
                control.close()
                _become(request, descriptors)
                return request
            for descriptor in descriptors[:3]:
                os.close(descriptor)
            selector.register(os.pidfd_open(pid), selectors.EVENT_READ, (pid, descriptors[3]))


def _report_end(process: int, pid: int, exit_pipe: int) -> None:
    os.close(process)
    _, status = os.waitpid(pid, 0)
    with suppress(BrokenPipeError):  # `warm.py` has ended
        os.write(exit_pipe, str(os.waitstatus_to_exitcode(status)).encode())
    os.close(exit_pipe)


def _become(request: dict[str, Any], descriptors: list[int]) -> None:
    """Set up the process like a new interpreter, in its own session, and report its id."""
    os.setsid()
    os.write(descriptors[3], f"{os.getpid()}\n".encode())
    for number, descriptor in enumerate(descriptors[:3]):
        os.dup2(descriptor, number)
    os.closerange(3, 4_096)
    os.umask(request["umask"])
    os.chdir(request["directory"])
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.argv = request["arguments"]
    sys.stdin, sys.stdout, sys.stderr = (
        open(number, mode, buffering, "utf-8", errors, closefd=False)  # noqa: SIM115 - they are open until the end
        for number, mode, buffering, errors in ((0, "r", -1, None), (1, "w", -1, None), (2, "w", 1, "backslashreplace"))
    )


def _forked(text: str, kept: int) -> int:
    """The id of a new process that runs `text` as an interpreter's `-c` would, with the descriptor `kept`."""
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    # The handlers of this process are not those of a new interpreter.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        if pid := os.fork():
            return pid
        _begin_again({*range(3), kept}, before)
        _run_alone(text)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class _Launcher:
    """The used part of `asyncio.subprocess.Process`."""

    def __init__(self, pid: int) -> None:
        self._pid = pid

    async def wait(self) -> None:
        await asyncio.to_thread(os.waitpid, self._pid, 0)

    def kill(self) -> None:
        os.kill(self._pid, signal.SIGKILL)


async def _launched(descriptor: int) -> _Launcher:
    """Instead of that of `muniment.guest.children`: a command forks the launcher of its sandbox."""
    return _Launcher(_forked(_LAUNCHER.format(descriptor), descriptor))


def _begin_again(kept: set[int], mask: Iterable[int]) -> None:
    """Leave the signals and descriptors of the process that forked this one."""
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    # Objects that have a descriptor are still there, and may close it: none of these numbers is free until then.
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in [int(each.name) for each in Path("/proc/self/fd").iterdir()]:
        if number not in kept and number != nothing:
            with suppress(OSError):  # the directory itself was one
                os.fstat(number)
                os.dup2(nothing, number, inheritable=False)
    os.close(nothing)


def _run_alone(text: str) -> NoReturn:
    """Run the text, and end."""
    status = 1
    try:
        exec(compile(text, "<string>", "exec"), {"__name__": "__main__"})  # noqa: S102 - the text of a launcher
        status = 0
    except SystemExit as ended:
        status = ended.code if isinstance(ended.code, int) else 0 if ended.code is None else 1
    except BaseException:  # noqa: BLE001 - as an interpreter reports it
        traceback.print_exc()
    finally:
        with suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


def main() -> None:
    """Load, serve, and run the command in a new process."""
    statuses: list[int] = []
    atexit.register(_end, statuses)  # the first that is registered runs last
    wait_a_minute()
    for name in _LOADED:
        package = importlib.import_module(name)
        for module in pkgutil.walk_packages(getattr(package, "__path__", ()), f"{name}."):
            with suppress(ImportError):  # the library of an extra that is not installed
                importlib.import_module(module.name)
    gc.freeze()
    request = serve(socket.socket(fileno=int(sys.argv[1])))
    if request is not None:
        if "muniment.guest.launcher" in sys.modules:
            children: Any = importlib.import_module("muniment.guest.children")
            children._launched = _launched
        statuses.append(_status_of(*request["program"]))


def _status_of(*program: str) -> int:
    """Run it, and return its status. Whatever else ends it is raised, and the interpreter reports it."""
    try:
        _run(*program)
    except SystemExit as ended:
        if isinstance(ended.code, str):
            raise
        return ended.code or 0
    return 0


def _end(statuses: list[int]) -> None:
    """End before the interpreter is taken down, which takes longer than most commands do."""
    for status in statuses:
        with suppress(OSError):  # the interpreter tries again, and reports it
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)


def _run(*program: str) -> None:
    """Run what the interpreter would run for these arguments (`python -h`)."""
    if program[0] == "-m":
        command: Any = importlib.import_module(f"{program[1]}.__main__")
        command.main()
    elif program[0] == "-c":
        exec(compile(program[1], "<string>", "exec"), {"__name__": "__main__"})  # noqa: S102 - a text of a test
    else:
        runpy.run_path(program[0], run_name="__main__")


if __name__ == "__main__":
    main()
