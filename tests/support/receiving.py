"""A receiver of webhooks on loopback."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from threading import Thread
from typing import Any

from standardwebhooks import Webhook as Verifier

from local_server import LocalServer


@dataclass(frozen=True)
class Received:
    """A request to the receiver; header names are in lower case."""

    fields: dict[str, str]
    body: bytes

    @property
    def event(self) -> dict[str, Any]:
        return json.loads(self.body)

    def verify(self, secret: str) -> None:
        """Verify the signature by the library `standardwebhooks`; raises its error."""
        Verifier(secret).verify(self.body, self.fields)


# Writes the answer to an event.
Answer = Callable[[asyncio.StreamWriter], Awaitable[None]]
# Status, header fields and body of an answer to a request.
Reply = tuple[int, dict[str, str], bytes]


def echo(received: Received) -> Reply:
    """The answer of a receiver that confirms the challenge."""
    return 200, {}, b"welcome " + received.event["data"]["challenge"].encode()


class Receiver:
    """A receiver of webhooks that keeps requests and answers them with `reply`."""

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

            def log_message(self, format: str, *args: object) -> None:
                del format, args

        with LocalServer(("127.0.0.1", port), Handler) as server:
            self.url = f"http://127.0.0.1:{server.server_port}/hook?key=private"
            thread = Thread(target=server.serve_forever, args=(0.02,), daemon=True)  # looks for its end so often
            thread.start()
            yield self
            server.shutdown()
            thread.join()


@asynccontextmanager
async def raw_receiver(address: str, answer: Answer) -> AsyncGenerator[str]:
    """URL of a server that confirms the challenge, and gives `answer` to events."""
    opened: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        opened.append(writer)
        with suppress(OSError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            length = int(head.split(b"content-length:")[1].split(b"\r\n")[0])
            event: Any = json.loads(await reader.readexactly(length))
            if isinstance(event, dict) and "challenge" in event["data"]:
                text: str = event["data"]["challenge"]
                writer.write(b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n" + text.encode())
            else:
                await answer(writer)
        writer.close()

    server = await asyncio.start_server(serve, address, 0)
    try:
        yield f"http://{address}:{server.sockets[0].getsockname()[1]}/"
    finally:
        server.close()
        for writer in opened:
            writer.transport.abort()
        await server.wait_closed()
