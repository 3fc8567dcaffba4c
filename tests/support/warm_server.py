"""Start `muniment` without import time: a process that has loaded it forks one for each command.

It is given one end of a socket pair. Each message is a request of `warm.py`, with four descriptors: standard input,
output and error of the new process, and the one that reports its end.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import runpy
import selectors
import socket
import sys
from contextlib import suppress
from typing import Any

MESSAGE_BYTES_MAX = 1 << 20
# What a command loads when it is called, so that the process that forks has it already.
_LOADED = (
    "muniment.__main__", "muniment.cli.events", "muniment.cli.logs", "muniment.cli.serve", "muniment.operate.databases",
    "muniment.service.app", "muniment.service.server.run", "muniment.service.storage.postgres.engine",
    "muniment.service.storage.sqlite.engine", "uvloop",
)  # fmt: skip
# What only some commands load, before the first of them is forked.
_LOADED_FOR = {"relayer": ("muniment.relayer.program",), "launcher": ("muniment.guest.launcher",)}


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


def main() -> None:
    """Load, serve, and run the command in a new process."""
    statuses: list[int] = []
    atexit.register(_end, statuses)  # the first that is registered runs last
    for name in _LOADED:
        importlib.import_module(name)
    gc.freeze()
    request = serve(socket.socket(fileno=int(sys.argv[1])))
    if request is not None:
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
        sys.modules["__main__"] = command  # processes that the command spawns import its main module
        command.main()
    elif program[0] == "-c":
        exec(compile(program[1], "<string>", "exec"), {"__name__": "__main__"})  # noqa: S102 - a text of a test
    else:
        runpy.run_path(program[0], run_name="__main__")


if __name__ == "__main__":
    main()
