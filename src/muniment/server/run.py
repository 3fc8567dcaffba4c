"""Processes that serve, by uvicorn: it owns the event loop, the workers, the signals and the end in good order.

Connections are ours (`muniment.server.connection`), which it makes by the class given as `http`.
"""

from __future__ import annotations

import asyncio
import gc
import resource
import signal
import socket
from typing import TYPE_CHECKING, Any, Final, cast

import uvicorn
from uvicorn.config import STARTUP_FAILURE
from uvicorn.supervisors import Multiprocess

from muniment.http.asgi import AsgiAdapter
from muniment.server.accepting import Accepting
from muniment.server.connection import Connection
from muniment.server.shared import Answering, Shared

if TYPE_CHECKING:
    from collections.abc import Callable

    from muniment.http.asgi import Lifespan

# Connections that wait to be accepted, while a process starts for instance; the kernel has a cap of its own.
BACKLOG: Final = 2_048
# Descriptors for the database, blocks that are read, outgoing requests and uploads.
_DESCRIPTORS_RESERVED: Final = 128
# An idle connection takes ten kilobytes.
_CONNECTIONS_MAX: Final = 8_192
# Containers more than were freed, at which young ones are looked through: a few megabytes, if all were garbage.
_ALLOCATIONS_PER_COLLECTION: Final = 20_000


class ServedApplication(AsgiAdapter):
    """What a process loads: for uvicorn an ASGI application with a lifespan, for connections what they share."""

    def __init__(
        self, application: Answering, lifespan: Lifespan, *,
        now_s: Callable[[], float], head_seconds_max: float, connections_max: int = 0,
        is_proxy: Callable[[str], bool], client_name: Callable[[str], str],
    ) -> None:  # fmt: skip
        """Serve `application`; `connections_max` 0 means as many as the descriptors allow."""
        super().__init__(application.respond, lifespan)
        self.shared = Shared(
            application=application, now_s=now_s, head_seconds_max=head_seconds_max,
            connections_max=connections_max or connections_by_descriptors(),
            is_proxy=is_proxy, client_name=client_name,
        )  # fmt: skip


class Config(uvicorn.Config):
    """What uvicorn serves with, and the listener, of which connections are taken that it has not accepted yet."""

    listener: socket.socket
    accepting: Accepting | None = None

    def look_for_more(
        self, loop: asyncio.AbstractEventLoop, shared: Shared, make_protocol: Callable[[], asyncio.Protocol]
    ) -> None:
        """Accept what waits behind a connection that was accepted."""
        if self.accepting is None:
            self.listener.setblocking(False)
            # Some more than may be: those are closed, and seen to be too many.
            most = shared.connections_max + _DESCRIPTORS_RESERVED // 2
            self.accepting = Accepting(self.listener, loop, lambda: most - shared.connections)
        self.accepting.plan(make_protocol)


class UvicornConnection(Connection):
    """A connection as uvicorn makes it."""

    def __init__(
        self, config: Config, server_state: Any, app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:  # fmt: skip
        """Take what uvicorn gives to a protocol: its set of connections is what it waits for at the end."""
        served = cast("ServedApplication", config.loaded_app)
        loop = _loop or asyncio.get_running_loop()
        super().__init__(served.shared, loop, server_state.connections, server_state.tasks)
        config.look_for_more(loop, served.shared, lambda: UvicornConnection(config, server_state, app_state, loop))
        self._config = config

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """As `Connection.connection_made`; one that was accepted just before the end is told of it, too."""
        super().connection_made(transport)
        if self._config.listener.fileno() < 0:
            self.shutdown()


def serve(listener: socket.socket, factory: str, *, workers: int, stop_seconds_max: int) -> None:
    """Serve on `listener` until SIGTERM or Ctrl-C. `factory` names what makes the `ServedApplication` of a process.

    Raises `SystemExit` when a worker cannot start.
    """
    raise_descriptor_limit()
    config = Config(
        factory, factory=True, workers=workers, backlog=BACKLOG, loop="uvloop", http=UvicornConnection,
        interface="asgi3", ws="none", lifespan="on", log_config=None, access_log=False, proxy_headers=False,
        server_header=False, date_header=False, timeout_graceful_shutdown=stop_seconds_max,
    )  # fmt: skip
    config.listener = listener
    if workers > 1:
        supervisor = Multiprocess(config, [listener])
        supervisor.run()
        if any(worker.exitcode == STARTUP_FAILURE for worker in supervisor.processes):
            raise SystemExit(STARTUP_FAILURE)
        return
    server = uvicorn.Server(config)
    # uvicorn takes over the signals when its loop runs, and raises one that stopped it again when it is done. Before
    # that a signal must not be lost, and after it there is nothing left to do: for both its own handler is right.
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, server.handle_exit)
    server.run([listener])


def settle_memory() -> None:
    """Tell the garbage collector of a process that has loaded what it serves with.

    What is loaded stays, and a request leaves no cycles: looking for some through everything, as often as Python does
    by default, took a thirtieth of a create, and stopped all requests for tens of milliseconds now and then.
    """
    gc.freeze()
    gc.set_threshold(_ALLOCATIONS_PER_COLLECTION)


def raise_descriptor_limit() -> None:
    """Allow this process, and those that it starts, as many open descriptors as the system lets it."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def connections_by_descriptors() -> int:
    """How many connections a process may have, so that descriptors are left for everything else."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return _CONNECTIONS_MAX
    return max(1, min(_CONNECTIONS_MAX, soft - _DESCRIPTORS_RESERVED))


def listen(host: str, port: int) -> socket.socket:
    """The socket that all processes accept from. Who connects before one is ready waits instead of being refused.

    Raises `OSError` with the reason.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        raise OSError(f"cannot listen on {host} port {port}: {_reason(error)}") from error


def _reason(error: OSError) -> str:
    """What went wrong, without the address that Python repeats behind it."""
    return (error.strerror or str(error)).partition(" (while")[0]
