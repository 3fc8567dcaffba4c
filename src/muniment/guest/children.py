"""The children of a process that runs modules: the launcher that forks them, their pipes, their ends."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from importlib.util import find_spec
from signal import SIGABRT, SIGKILL, SIGXCPU, Signals
from typing import Final, NamedTuple

from muniment.guest.frames import HEAD_BYTES, FromChild, ToChild, frame, length_of, read_from_child
from muniment.guest.limits import CHILDREN_MAX
from muniment.guest.orders import ENDED, FORK, KILL, NOT_FORKED, ORDER_BYTES, order, read_order
from muniment.guest.outcomes import Stop

_LIBRARIES: Final = ("wasmtime", "eth_abi")
# Compiled code comes in frames of a hundred kilobytes.
_BUFFER_BYTES: Final = 256 * 1024
# The launcher ends by itself when its socket is closed; only a machine without time needs longer.
_END_S: Final = 5.0


class SandboxMissing(Exception):
    """This installation or system cannot run functions; the message says what to do."""


class ChildEnded(Exception):
    """A child closed its pipe before it said what became of its job."""


class End(NamedTuple):
    """How a child ended: its status as wait4(2) gives it, and the most memory that it had, in KiB (macOS: bytes)."""

    status: int
    memory: int


class Child:
    """The parent's end of the pipe to one child."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, end: asyncio.Future[End]) -> None:
        self._reader = reader
        self._writer = writer
        self._end = end

    async def send(self, message: ToChild) -> None:
        """Send a frame. Raises `ChildEnded`."""
        try:
            self._writer.write(frame(message))
            await self._writer.drain()
        except OSError as error:
            raise ChildEnded from error

    async def receive(self, length_max: int) -> FromChild:
        """The next frame, of at most `length_max` bytes. Raises `ChildEnded`, and `BadFrame` for what is none."""
        try:
            length = length_of(await self._reader.readexactly(HEAD_BYTES), length_max)
            data = await self._reader.readexactly(length)
        except (asyncio.IncompleteReadError, OSError) as error:
            raise ChildEnded from error
        return read_from_child(data)

    async def end(self) -> End:
        """How it ended; waits for it, since a process ends after it has closed its files."""
        try:
            async with asyncio.timeout(_END_S):
                return await asyncio.shield(self._end)
        except TimeoutError:
            return End(NOT_FORKED, 0)


def missing_libraries() -> tuple[str, ...]:
    """The libraries of the extra `relayer` that are not installed."""
    return tuple(name for name in _LIBRARIES if find_spec(name) is None)


class Children:
    """Starts the launcher when the first child is needed, and again if it ended; `close` ends all."""

    def __init__(self) -> None:
        self._free = asyncio.Semaphore(CHILDREN_MAX)
        self._launcher: asyncio.subprocess.Process | None = None
        self._control: socket.socket | None = None
        self._reading: asyncio.Task[None] | None = None
        self._starting = asyncio.Lock()
        self._ends: dict[int, asyncio.Future[End]] = {}
        self._count = 0

    @asynccontextmanager
    async def child(self) -> AsyncGenerator[Child]:
        """A new child. It is killed at the end of the block if it is still there."""
        async with self._free:
            control = await self._ready()
            self._count = number = (self._count + 1) % 2**32
            end = self._ends[number] = asyncio.get_running_loop().create_future()
            try:
                reader, writer = await _pipe(control, number)
            except BaseException:
                self._ends.pop(number, None)
                raise
            try:
                yield Child(reader, writer, end)
            finally:
                if not end.done():
                    with suppress(OSError):  # the launcher ended, and its children with it
                        control.send(order(KILL, number))
                writer.transport.abort()  # what the child has not read, it never will
                with suppress(OSError):
                    await writer.wait_closed()

    async def close(self) -> None:
        """End the launcher, and all children with it."""
        control, launcher = self._control, self._launcher
        self._control = self._launcher = None
        if self._reading:
            self._reading.cancel()
            with suppress(asyncio.CancelledError):
                await self._reading
        if control:
            control.close()
        if launcher:
            await _ended(launcher)

    async def _ready(self) -> socket.socket:
        """The socket of a launcher that runs."""
        async with self._starting:
            if self._control is None or self._reading is None or self._reading.done():
                await self.close()
                await self._start()
        if self._control is None:  # closed meanwhile
            raise SandboxMissing("the sandbox is closed")
        return self._control

    async def _start(self) -> None:
        if missing := missing_libraries():
            raise SandboxMissing(
                f"functions run with the library {' and '.join(missing)}. Type: pip install 'muniment[relayer]'"
            )
        if not hasattr(os, "fork"):
            raise SandboxMissing("functions run on Linux and macOS only: each needs a process of its own")
        ours, its = socket.socketpair()
        ours.setblocking(False)
        with its:
            try:
                self._launcher = await _launched(its.fileno())
            except OSError:
                ours.close()
                raise
        self._control = ours
        self._reading = asyncio.create_task(self._read(ours))

    async def _read(self, control: socket.socket) -> None:
        """Take the reports of the launcher until it ends; children that it leaves have ended with it."""
        loop, data = asyncio.get_running_loop(), b""
        try:
            while part := await loop.sock_recv(control, ORDER_BYTES - len(data)):
                data += part
                if len(data) == ORDER_BYTES:
                    letter, number, status, memory = read_order(data)
                    data = b""
                    if letter == ENDED and (end := self._ends.pop(number, None)):
                        end.set_result(End(status, memory))
        except OSError:  # as if it had closed the socket
            pass
        finally:
            for end in self._ends.values():
                end.set_result(End(NOT_FORKED, 0))
            self._ends.clear()


async def _pipe(control: socket.socket, number: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """The parent's end of a pipe whose other end the launcher gives to a new child. Raises `ChildEnded`.

    The socket of the launcher has room for the order: there are never more than `CHILDREN_MAX` on it.
    """
    ours, its = socket.socketpair()
    ours.setblocking(False)
    with its:
        try:
            socket.send_fds(control, [order(FORK, number)], [its.fileno()])
        except OSError as error:
            ours.close()
            raise ChildEnded from error
    return await asyncio.open_connection(sock=ours, limit=_BUFFER_BYTES)


async def _launched(descriptor: int) -> asyncio.subprocess.Process:
    """The process of a launcher whose socket is `descriptor`."""
    # -I: neither the environment, nor the working directory, nor the user's packages are in its path.
    return await asyncio.create_subprocess_exec(
        sys.executable, "-I", "-m", "muniment.guest.launcher", str(descriptor),
        env={}, cwd="/", pass_fds=(descriptor,), start_new_session=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip


async def _ended(launcher: asyncio.subprocess.Process) -> None:
    try:
        async with asyncio.timeout(_END_S):
            await launcher.wait()
    except TimeoutError:
        launcher.kill()
        await launcher.wait()


def stop_of_end(end: End) -> Stop:
    """What it means for a run that its child ended without a word."""
    if end.status == NOT_FORKED:
        return Stop("crash", "no process could be started, or all were ended")
    if not os.WIFSIGNALED(end.status):
        return Stop("crash", f"the process ended with status {os.waitstatus_to_exitcode(end.status)}")
    number = os.WTERMSIG(end.status)
    name = Signals(number).name if number in set(Signals) else f"signal {number}"
    if number == SIGXCPU:
        return Stop("time", "the process used up its CPU seconds")
    if number == SIGABRT:  # how the engine ends where an allocation fails
        return Stop("memory", "the process ended by SIGABRT: it has no more memory")
    if number == SIGKILL:  # nobody here killed it: the system does when memory is short
        return Stop("memory", "the system killed the process, as it does where memory is short")
    return Stop("crash", f"the process ended by {name}")
