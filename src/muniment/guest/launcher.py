"""The program `python -I -m muniment.guest.launcher FD`: a clean interpreter that forks a child for each job.

It is started with an empty environment and one socket, so there is nothing that a child could inherit: no key, no
connection, no module of another run. It has imported what a child needs, which takes most of a second; a fork takes
some milliseconds. It reads no job itself: the pipe of each child comes over the socket, and is closed here.
"""

from __future__ import annotations

import array
import contextlib
import gc
import os
import selectors
import signal
import socket
import sys
import time
from typing import Final, NoReturn

from muniment.guest.child import serve_one
from muniment.guest.confinement import end_with_parent
from muniment.guest.orders import ENDED, FORK, KILL, NOT_FORKED, ORDER_BYTES, order, read_order

# More than the launcher ever has open: it closes each pipe when it has forked.
_DESCRIPTORS: Final = 64
# CPU seconds in which honest functions have ended. A child that goes on yields to the others, and to the relayer.
_QUICK_S: Final = 0.5
_NICE: Final = 10
# Between two looks at children that may still be quick.
_LOOK_S: Final = 0.1


class _Launcher:
    """Children by their number, and the process ids by which the kernel knows them until they are reaped."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._children: dict[int, int] = {}
        # Process ids of children that have not used up their `_QUICK_S`.
        self._quick: set[int] = set()
        self._wake, self._woken = os.pipe()
        for end in (self._wake, self._woken):
            os.set_blocking(end, False)
        self._data = b""
        self._pipes: list[int] = []

    def serve(self) -> None:
        """Fork, kill and report until the parent closes the socket; then end all children."""
        signal.set_wakeup_fd(self._woken, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, _noted)
        with selectors.DefaultSelector() as selector, contextlib.suppress(ConnectionError):  # the parent has gone
            selector.register(self._control, selectors.EVENT_READ)
            selector.register(self._wake, selectors.EVENT_READ)
            while True:
                ready = {key.fd for key, _ in selector.select(_LOOK_S if self._quick else None)}
                self._slow_down()
                if self._wake in ready:
                    with contextlib.suppress(BlockingIOError):
                        os.read(self._wake, 4096)
                    self._reap()
                if self._control.fileno() in ready and not self._obey():
                    break
        for process in self._children.values():  # Linux does it too
            os.kill(process, signal.SIGKILL)

    def _obey(self) -> bool:
        """Read what has come of an order, and obey it when it is whole; False when the parent has gone."""
        data, pipes = _received(self._control, ORDER_BYTES - len(self._data))
        self._pipes += pipes
        if not data:
            return False
        self._data += data
        if len(self._data) < ORDER_BYTES:
            return True
        letter, number, _, _ = read_order(self._data)
        self._data = b""
        if letter == KILL and number in self._children:
            os.kill(self._children[number], signal.SIGKILL)
        elif letter == FORK and self._pipes:
            self._fork(number, self._pipes.pop())
        return True

    def _fork(self, number: int, pipe: int) -> None:
        try:
            process = os.fork()
        except OSError:  # no memory, or too many processes
            os.close(pipe)
            self._control.sendall(order(ENDED, number, NOT_FORKED))
            return
        if process == 0:
            _live(pipe)
        os.close(pipe)
        self._children[number] = process
        self._quick.add(process)

    def _slow_down(self) -> None:
        for process in [each for each in self._quick if _cpu_seconds(each) >= _QUICK_S]:
            os.setpriority(os.PRIO_PROCESS, process, os.nice(0) + _NICE)
            self._quick.discard(process)

    def _reap(self) -> None:
        while self._children:
            process, status, usage = os.wait4(-1, os.WNOHANG)
            if process == 0:
                return
            number = next(number for number, each in self._children.items() if each == process)
            del self._children[number]
            self._quick.discard(process)
            self._control.sendall(order(ENDED, number, status, usage.ru_maxrss))


def _cpu_seconds(process: int) -> float:
    """What a process has used: its CPU clock has this number on Linux (clock_getcpuclockid(3)); 0 elsewhere."""
    try:
        return time.clock_gettime(~process << 3 | 2)
    except OSError:
        return 0.0


def _noted(_number: int, _frame: object) -> None:
    """The end of a child has woken the selector; nothing else is to be done here."""


def _received(control: socket.socket, size: int) -> tuple[bytes, list[int]]:
    """Data and descriptors (unix(7), SCM_RIGHTS); no data when the other side has closed."""
    pipes = array.array("i")
    data, ancillary, _, _ = control.recvmsg(size, socket.CMSG_LEN(pipes.itemsize))
    for level, kind, content in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            pipes.frombytes(content[: len(content) - len(content) % pipes.itemsize])
    return data, list(pipes)


def _live(pipe: int) -> NoReturn:
    """A child: it keeps its pipe as descriptor 0 and nothing else. It never returns to what it was forked from."""
    status = 1
    try:
        end_with_parent()
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.dup2(pipe, 0, inheritable=False)
        # The launcher has its standard files, its socket, its two pipes and its selector: a child closes all of them.
        os.closerange(1, _DESCRIPTORS)
        serve_one(0)
        status = 0
    finally:
        os._exit(status)


def main(descriptor: int) -> None:
    """Serve the socket `descriptor` until it closes."""
    end_with_parent()
    # Codecs are found in files when they are first used, and a child has no files.
    for codec in ("utf-8", "utf-16-le"):
        "".encode(codec).decode(codec, "replace")
    # It came by the number that it has in the parent, which may have a thousand files: a child closes low ones.
    control = socket.socket(fileno=os.dup(descriptor))
    os.close(descriptor)
    gc.collect()
    gc.freeze()  # children share the pages of what is there
    _Launcher(control).serve()


if __name__ == "__main__":
    if len(sys.argv) != 2:  # noqa: PLR2004 - the program and its socket
        sys.exit("Everything that a launcher needs is here. It is started by a sandbox, which gives it a socket.")
    main(int(sys.argv[1]))
