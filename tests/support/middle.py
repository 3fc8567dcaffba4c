"""A proxy in front of a service, over sockets. It may change answers, abort exchanges and answer itself."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler
from typing import NamedTuple
from urllib.parse import urlsplit

from local_server import LocalServer

# Header fields of one connection, which a proxy does not pass on (RFC 9110 section 7.6.1).
_OF_CONNECTION = {"connection", "keep-alive", "transfer-encoding", "content-length", "date", "server"}


class Asked(NamedTuple):
    """A request of the client; header names are in lower case."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes


class Answered(NamedTuple):
    """An answer to the client."""

    status: int
    headers: dict[str, str]
    content: bytes


Forward = Callable[[], Answered]
# What happens to a request: an answer, None for a connection that ends without one, or bytes to send piece by piece.
Behaviour = Callable[[Asked, Forward], Answered | Iterable[bytes] | None]


def honest(asked: Asked, forward: Forward) -> Answered:
    """Forward the request and its answer."""
    del asked
    return forward()


def always(answer: Answered) -> Behaviour:
    """Give the same answer to every request, without the service."""

    def behave(asked: Asked, forward: Forward) -> Answered:
        del asked, forward
        return answer

    return behave


def remembering(behave: Behaviour, known: dict[tuple[str, str, bytes], Answered]) -> Behaviour:
    """`behave`, before a service that is asked once for each request; `known` has its answers."""

    def remembered(asked: Asked, forward: Forward) -> Answered | Iterable[bytes] | None:
        def answer() -> Answered:
            request = (asked.method, asked.target, asked.body)
            if request not in known:
                known[request] = forward()
            return known[request]

        return behave(asked, answer)

    return remembered


@dataclass
class Middle:
    """The proxy. `behave` handles each request; `asked` has all of them."""

    behind: str
    behave: Behaviour = honest
    asked: list[Asked] = field(default_factory=list[Asked])
    url: str = ""

    def answer(self, asked: Asked) -> Answered | Iterable[bytes] | None:
        self.asked.append(asked)
        return self.behave(asked, lambda: self.forward(asked))

    def forward(self, asked: Asked) -> Answered:
        """The answer of the service."""
        connection = HTTPConnection(urlsplit(self.behind).netloc, timeout=60)
        try:
            headers = {**asked.headers, "connection": "close"}
            connection.request(asked.method, asked.target, asked.body or None, headers)
            # An aborted answer would keep its socket until its error is released.
            with connection.getresponse() as response:
                fields = {name.lower(): value for name, value in response.getheaders()}
                return Answered(response.status, fields, response.read())
        finally:
            connection.close()

    @contextmanager
    def behaving(self, behave: Behaviour) -> Generator[None]:
        """Set the behaviour until the end of the block."""
        before, self.behave = self.behave, behave
        try:
            yield
        finally:
            self.behave = before


def bytes_of(answer: Answered) -> bytes:
    """The bytes of the answer."""
    headers = {name: value for name, value in answer.headers.items() if name not in _OF_CONNECTION}
    if answer.status not in {204, 304}:
        headers["content-length"] = str(len(answer.content))
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {answer.status} Said\r\n{lines}\r\n".encode("latin-1") + answer.content


@contextmanager
def before(url: str) -> Generator[Middle]:
    """An honest proxy in front of the service at `url`."""
    middle = Middle(url)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def handle_any(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            headers = {name.lower(): value for name, value in self.headers.items()}
            headers.pop("host", None)
            answer = middle.answer(Asked(self.command, self.path, headers, body))
            if isinstance(answer, Answered):
                with suppress(OSError):  # a client may have heard enough
                    self.wfile.write(bytes_of(answer))
                return
            self.close_connection = True
            with suppress(OSError):
                for piece in answer or ():
                    self.wfile.write(piece)
                self.connection.shutdown(socket.SHUT_RDWR)

        do_GET = do_POST = do_PUT = do_DELETE = handle_any  # noqa: N815 - the names of the library

        def log_message(self, format: str, *args: object) -> None:
            """Print nothing."""

    with LocalServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        middle.url = f"http://127.0.0.1:{server.server_address[1]}"
        try:
            yield middle
        finally:
            server.shutdown()
