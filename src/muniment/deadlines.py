"""Deadlines of blocking exchanges.

Timeouts of sockets are for each read: a server that sends one answer 1xx after another (RFC 9110 section 15.2), or a
byte a second, never lets one expire. A thread then shuts the connection down, the only way to end a blocked read.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from threading import Timer
from typing import Any
from weakref import WeakSet


@dataclass(slots=True)
class Deadline:
    """When an exchange takes longer than `seconds`, `end` is called, and `is_over` is true."""

    seconds: float
    end: Callable[[], None]
    is_over: bool = field(default=False, init=False)

    @contextmanager
    def watched(self) -> Generator[None]:
        """End the exchange if the block is not over in time."""
        timer = Timer(self.seconds, self._pass)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _pass(self) -> None:
        self.is_over = True
        with suppress(OSError):  # the connection has ended by itself
            self.end()


@dataclass(slots=True)
class Connections:
    """The connections of one HTTP client of httpx2 to one server."""

    _idle: WeakSet[Any] = field(default_factory=WeakSet[Any])

    def exchange(self, seconds: float) -> Exchange:
        """A new exchange, which must end within `seconds`."""
        return Exchange(seconds, self._idle)


class Exchange(Deadline):
    """An exchange of httpx2. Pass `trace` as the extension of that name, and call `begin` with the answer."""

    def __init__(self, seconds: float, idle: WeakSet[Any]) -> None:
        """Keep the connection among those in `idle` when its answer begins."""
        super().__init__(seconds, self._shut_down)
        self._idle = idle
        self._stream: Any = None

    def trace(self, event: str, info: Mapping[str, Any]) -> None:
        """Record a new connection, and TLS on it."""
        if event.endswith(("connect_tcp.complete", "start_tls.complete")):
            self._stream = info["return_value"]
            if self.is_over:  # the time passed before there was a connection that could be shut down
                self._pass()

    def begin(self, extensions: Mapping[str, Any]) -> None:
        """Record the connection of the answer."""
        self._stream = extensions.get("network_stream")
        if self._stream is not None:
            self._idle.add(self._stream)

    def _shut_down(self) -> None:
        """Shut down the connection, or all idle ones: a reused connection is not reported."""
        for stream in [*self._idle] if self._stream is None else [self._stream]:
            with suppress(OSError):
                stream.get_extra_info("socket").shutdown(socket.SHUT_RDWR)
