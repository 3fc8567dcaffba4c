"""A stand-in for a foreign server: gives the answers that a test has prepared, and records the requests."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from threading import Event, Thread

from local_server import LocalServer


@dataclass
class ForeignServer:
    """`body` may be a function of the request's path."""

    url: str = ""
    status: int = 200
    body: bytes | Callable[[str], bytes] = b""
    headers: dict[str, str] = field(default_factory=dict)
    delay_s: float = 0
    asked: list[str] = field(default_factory=list)


@contextmanager
def foreign_server() -> Generator[ForeignServer]:
    state, ended = ForeignServer(), Event()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            state.asked.append(self.path)
            ended.wait(state.delay_s)
            body = state.body(self.path) if callable(state.body) else state.body
            self.send_response(state.status)
            for name, value in state.headers.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = LocalServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    state.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield state
    finally:
        ended.set()
        server.shutdown()
        thread.join()
        server.server_close()
