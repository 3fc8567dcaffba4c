"""A proxy before the service that changes the bytes: a network, or a host, that is not to be trusted."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler

import httpx2

from local_server import LocalServer

Change = Callable[[bytes], bytes]


@contextmanager
def bad_wire(url: str, change: Change) -> Generator[str]:
    """The URL of a proxy before `url` that sends the bodies of answers through `change`."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer = httpx2.get(url + self.path, headers={"accept": self.headers.get("accept", "*/*")})
            body = change(answer.content)
            self.send_response(answer.status_code)
            self.send_header("content-type", answer.headers["content-type"])
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:  # pyright: ignore[reportIncompatibleMethodOverride] - silent
            pass

    server = LocalServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def unchanged(body: bytes) -> bytes:
    """An honest wire."""
    return body


def flip_last_byte(body: bytes) -> bytes:
    """Damage to what is large: the leaves of a file, the end of a CAR file."""
    return body[:-1] + bytes([body[-1] ^ 1]) if len(body) > 1_000 else body


def cut_short(body: bytes) -> bytes:
    """The end is missing, and the length says nothing of it."""
    return body[: len(body) * 2 // 3] if len(body) > 1_000 else body
