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
from muniment.server.connection import Connection
from muniment.server.shared import Answering, Shared

if TYPE_CHECKING:
    from collections.abc import Callable

    from muniment.http.asgi import Lifespan

# Connections that wait to be accepted, while a process starts for instance; the kernel has a cap of its own.
BACKLOG: Final = 2_048
# uvloop accepts one connection from each listener in a turn of its loop, so that a burst of them waits for as many
# turns. With the same socket given eight times, the last of 900 has its answer 40 times sooner; more gain nothing.
_LISTENERS: Final = 8
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


class UvicornConnection(Connection):
    """A connection as uvicorn makes it."""

    def __init__(
        self, config: uvicorn.Config, server_state: Any, app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:  # fmt: skip
        """Take what uvicorn gives to a protocol: its set of connections is what it waits for at the end."""
        del app_state
        served = cast("ServedApplication", config.loaded_app)
        super().__init__(
            served.shared, _loop or asyncio.get_running_loop(), server_state.connections, server_state.tasks
        )


def serve(listener: socket.socket, factory: str, *, workers: int, stop_seconds_max: int) -> None:
    """Serve on `listener` until SIGTERM or Ctrl-C. `factory` names what makes the `ServedApplication` of a process.

    Raises `SystemExit` when a worker cannot start.
    """
    raise_descriptor_limit()
    config = uvicorn.Config(
        factory, factory=True, workers=workers, backlog=BACKLOG, loop="uvloop", http=UvicornConnection,
        interface="asgi3", ws="none", lifespan="on", log_config=None, access_log=False, proxy_headers=False,
        server_header=False, date_header=False, timeout_graceful_shutdown=stop_seconds_max,
    )  # fmt: skip
    listeners = [listener, *(listener.dup() for _ in range(_LISTENERS - 1))]
    if workers > 1:
        supervisor = Multiprocess(config, listeners)
        supervisor.run()
        if any(worker.exitcode == STARTUP_FAILURE for worker in supervisor.processes):
            raise SystemExit(STARTUP_FAILURE)
        return
    server = uvicorn.Server(config)
    # uvicorn takes over the signals when its loop runs, and raises one that stopped it again when it is done. Before
    # that a signal must not be lost, and after it there is nothing left to do: for both its own handler is right.
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, server.handle_exit)
    server.run(listeners)


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
