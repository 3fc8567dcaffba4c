"""A receiver of webhooks on loopback."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from threading import Thread
from typing import Any

from standardwebhooks import Webhook as Verifier

from local_server import LocalServer


@dataclass(frozen=True)
class Received:
    """A request that reached the receiver; names of header fields are in lower case."""

    fields: dict[str, str]
    body: bytes

    @property
    def event(self) -> dict[str, Any]:
        return json.loads(self.body)

    def verify(self, secret: str) -> None:
        """Raise the error of the library `standardwebhooks` when the signature is not by this secret."""
        Verifier(secret).verify(self.body, self.fields)


# Status, header fields and body of an answer to a request.
Reply = tuple[int, dict[str, str], bytes]


def echo(received: Received) -> Reply:
    """The answer of a receiver that agrees."""
    return 200, {}, b"welcome " + received.event["data"]["challenge"].encode()


class Receiver:
    """A receiver of webhooks: it keeps the requests, and answers them with `reply`."""

    def __init__(self) -> None:
        self.received: list[Received] = []
        self.reply: Callable[[Received], Reply] = echo
        self.url = ""

    @contextmanager
    def listening(self, port: int = 0) -> Generator[Receiver]:
        """Listen on this port of loopback; 0: on a free one."""
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                got = Received({name.lower(): value for name, value in self.headers.items()}, body)
                receiver.received.append(got)
                status, fields, content = receiver.reply(got)
                self.send_response(status)
                for name, value in {"content-length": str(len(content)), **fields}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name in the standard library
                del format, args

        with LocalServer(("127.0.0.1", port), Handler) as server:
            self.url = f"http://127.0.0.1:{server.server_port}/hook?key=private"
            thread = Thread(target=server.serve_forever, daemon=True)
            thread.start()
            yield self
            server.shutdown()
            thread.join()
