"""The serving process: uvicorn owns the event loop, the signals and the orderly stop.

Its connections are of our class (`muniment.service.server.connection`), given as `http`.
"""

from __future__ import annotations

import asyncio
import errno
import gc
import resource
import signal
import socket
import sys
from typing import TYPE_CHECKING, Any, Final, cast

import uvicorn

from muniment.service.server.connection import Connection
from muniment.service.server.sending import give_back
from muniment.service.server.shared import Answering, Shared

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, MutableMapping
    from contextlib import AbstractAsyncContextManager

    _Message = MutableMapping[str, Any]
    _Send = Callable[[_Message], Awaitable[None]]


# Connections accepted in one turn: ten to twenty milliseconds, for which other connections wait.
_ACCEPTED_PER_TURN: Final = 256


class Accepting:
    """Accepts the connections that wait at one listener."""

    def __init__(
        self, listener: socket.socket, loop: asyncio.AbstractEventLoop, room: Callable[[], int] = lambda: sys.maxsize
    ) -> None:
        """`listener` is non-blocking; `room` returns how many more connections the process may have."""
        self._room = room
        self._listener = listener
        self._loop = loop
        self._begun: set[asyncio.Task[object]] = set()
        self._is_planned = False

    def plan(self, make_protocol: Callable[[], asyncio.Protocol]) -> None:
        """Accept waiting connections later in this turn, each with a protocol of `make_protocol`."""
        if not self._is_planned:
            self._is_planned = True
            self._loop.call_soon(self._accept, make_protocol)

    def _accept(self, make_protocol: Callable[[], asyncio.Protocol]) -> None:
        self._is_planned = False
        for _ in range(min(_ACCEPTED_PER_TURN, self._room() - len(self._begun))):
            try:
                accepted, _ = self._listener.accept()
            except OSError:  # no connection waits, or no descriptor is free, which the event loop handles
                return
            accepted.setblocking(False)
            begun = self._loop.create_task(self._loop.connect_accepted_socket(make_protocol, accepted))
            self._begun.add(begun)
            begun.add_done_callback(self._begun.discard)


# Connections that wait to be accepted, for instance while a process starts; the kernel has its own limit.
BACKLOG: Final = 2_048
# Descriptors for the database, open blocks, outgoing requests and uploads.
_DESCRIPTORS_RESERVED: Final = 128
# An idle connection takes ten kilobytes.
_CONNECTIONS_MAX: Final = 8_192
# Allocated minus freed containers that start a collection of the youngest: a few megabytes, if all are garbage.
_ALLOCATIONS_PER_COLLECTION: Final = 20_000


class ServedApplication:
    """The application, its lifespan for uvicorn, and the shared state of its connections."""

    def __init__(
        self, application: Answering, lifespan: Callable[[], AbstractAsyncContextManager[None]], *,
        now_s: Callable[[], float], head_seconds_max: float, connections_max: int = 0,
        is_proxy: Callable[[str], bool], client_names: Callable[[str], tuple[str, ...]],
    ) -> None:  # fmt: skip
        """Serve `application`; `connections_max` 0 means as many as the descriptors allow.

        `lifespan` is entered when the server starts, and left when it stops.
        """
        self._lifespan = lifespan
        self.shared = Shared(
            application=application, now_s=now_s, head_seconds_max=head_seconds_max,
            connections_max=connections_max or connections_by_descriptors(),
            is_proxy=is_proxy, client_names=client_names,
        )  # fmt: skip

    async def __call__(self, scope: _Message, receive: Callable[[], Awaitable[_Message]], send: _Send) -> None:
        """The lifespan protocol of ASGI 3, which uvicorn speaks: startup, the time between, shutdown."""
        if scope["type"] != "lifespan":
            raise ValueError("requests come through `UvicornConnection`, not as ASGI messages")
        await receive()
        life = self._lifespan()
        try:
            await life.__aenter__()
        except Exception as error:
            await send({"type": "lifespan.startup.failed", "message": str(error)})
            raise
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await life.__aexit__(None, None, None)
        await send({"type": "lifespan.shutdown.complete"})


class Config(uvicorn.Config):
    """uvicorn's configuration, and the listener whose waiting connections are accepted together."""

    listener: socket.socket
    accepting: Accepting | None = None

    def look_for_more(
        self, loop: asyncio.AbstractEventLoop, shared: Shared, make_protocol: Callable[[], asyncio.Protocol]
    ) -> None:
        """Accept the connections that wait after an accepted one."""
        if self.accepting is None:
            self.listener.setblocking(False)
            # A few more than the limit are accepted and closed, instead of waiting.
            most = shared.connections_max + _DESCRIPTORS_RESERVED // 2
            self.accepting = Accepting(self.listener, loop, lambda: most - shared.connections)
        self.accepting.plan(make_protocol)


class UvicornConnection(Connection):
    """A connection with the constructor that uvicorn calls."""

    def __init__(
        self, config: Config, server_state: Any, app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:  # fmt: skip
        """Take uvicorn's arguments; at its stop it waits for the connections in `server_state`."""
        served = cast("ServedApplication", config.loaded_app)
        loop = _loop or asyncio.get_running_loop()
        super().__init__(served.shared, loop, server_state.connections, server_state.tasks)
        config.look_for_more(loop, served.shared, lambda: UvicornConnection(config, server_state, app_state, loop))
        self._config = config

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """As `Connection.connection_made`; one that was accepted just before the stop is shut down too."""
        super().connection_made(transport)
        if self._config.listener.fileno() < 0:
            self.shutdown()


def serve(listener: socket.socket, begin: Callable[[], ServedApplication], *, stop_seconds_max: int) -> None:
    """Serve on `listener` until SIGTERM or Ctrl-C what `begin` makes, which is called where the event loop runs.

    Raises what `begin` raises, and `SystemExit` when the application cannot start.
    """
    raise_descriptor_limit()
    config = Config(
        begin, factory=True, backlog=BACKLOG, loop="uvloop", http=UvicornConnection,
        interface="asgi3", ws="none", lifespan="on", log_config=None, access_log=False, proxy_headers=False,
        server_header=False, date_header=False, timeout_graceful_shutdown=stop_seconds_max,
    )  # fmt: skip
    config.listener = listener
    server = uvicorn.Server(config)
    # uvicorn handles signals only while its loop runs, and then raises the one that stopped it again. With its handler
    # set here too, a signal before the loop is not lost, and the repeated one is ignored.
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, server.handle_exit)
    server.run([listener])


def settle_memory() -> None:
    """Make garbage collections rare, and give the memory that loading has freed back to the system.

    Call it after everything is loaded.

    Loaded objects stay, and requests leave no cycles. Python's default collections took a thirtieth of the time of a
    create, and sometimes paused all requests for tens of milliseconds.
    """
    give_back()
    gc.freeze()
    gc.set_threshold(_ALLOCATIONS_PER_COLLECTION)


def raise_descriptor_limit() -> None:
    """Raise the limit of open descriptors of this process and its children to the most that the system allows."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def connections_by_descriptors() -> int:
    """The most connections of a process that leave descriptors for other uses."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return _CONNECTIONS_MAX
    return max(1, min(_CONNECTIONS_MAX, soft - _DESCRIPTORS_RESERVED))


def listen(host: str, port: int) -> socket.socket:
    """The listening socket. Clients that connect before the service is ready wait.

    A name with addresses of both families listens on its first one of IPv4. `::` takes IPv4 as well, where the system
    has such sockets (RFC 3493 section 5.3). Raises `OSError` with the reason.
    """
    try:
        found = socket.getaddrinfo(host.strip("[]") or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, *_, address = min(found, key=lambda each: each[0] != socket.AF_INET)
        is_dual = address[0] == "::" and socket.has_dualstack_ipv6()
        return socket.create_server(address, family=family, backlog=BACKLOG, dualstack_ipv6=is_dual)
    except OSError as error:
        hint = "; give another one with --port" if error.errno == errno.EADDRINUSE else ""
        raise OSError(f"cannot listen on {host} port {port}: {_reason(error)}{hint}") from error


def _reason(error: OSError) -> str:
    """The reason of the error, without the address that Python appends."""
    return (error.strerror or str(error)).partition(" (while")[0]
