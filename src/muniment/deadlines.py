"""The end of a blocking exchange that the other side never ends.

Timeouts of sockets are for each read: a server that sends one answer 1xx after another (RFC 9110 section 15.2), or a
byte a second, never lets one pass. A thread shuts the connection down then, since nothing else reaches a read.
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
    """What happens when an exchange takes longer than `seconds`: `end` is called, and `is_over` is true."""

    seconds: float
    end: Callable[[], None]
    is_over: bool = field(default=False, init=False)

    @contextmanager
    def watched(self) -> Generator[None]:
        """The block has to be over before the deadline."""
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
        """A new exchange, which has to be over after `seconds`."""
        return Exchange(seconds, self._idle)


class Exchange(Deadline):
    """An exchange of httpx2. Give `hear` as its extension `trace`, and `hold` the answer once its head is there."""

    def __init__(self, seconds: float, idle: WeakSet[Any]) -> None:
        """Keep the connection among those in `idle` when its answer begins."""
        super().__init__(seconds, self._shut_down)
        self._idle = idle
        self._stream: Any = None

    def hear(self, event: str, info: Mapping[str, Any]) -> None:
        """Take notice of a new connection, and of TLS on it."""
        if event.endswith(("connect_tcp.complete", "start_tls.complete")):
            self._stream = info["return_value"]

    def hold(self, extensions: Mapping[str, Any]) -> None:
        """Take notice of the connection that an answer has come on."""
        self._stream = extensions.get("network_stream")
        if self._stream is not None:
            self._idle.add(self._stream)

    def _shut_down(self) -> None:
        """Shut the connection down; where it is one of those that were kept alive, nobody knows which: all of them."""
        for stream in [*self._idle] if self._stream is None else [self._stream]:
            with suppress(OSError):
                stream.get_extra_info("socket").shutdown(socket.SHUT_RDWR)
