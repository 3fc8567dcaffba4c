"""Clients of many addresses: each asks as fast as it is answered, or so many times a second.

Run as a process of its own: `strangers.py FILE`, where FILE holds a `Plan` as JSON. Says `ready`, begins when a line
comes on its standard input, ends after the plan's seconds or requests, and prints `Seen` as JSON. A connection that is
refused or ends is opened again, at most ten times a second.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from itertools import cycle
from pathlib import Path
from typing import cast

import uvloop

_LENGTH = b"content-length: "
_SECONDS_BETWEEN_ATTEMPTS = 0.1
# For the last answers, which may be held back a while.
LAST_SECONDS_MAX = 5


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What is sent by whom. `per_second` is of all connections together; None: as fast as they are answered."""

    port: int
    addresses: list[str]
    connections: int
    seconds: float
    requests: list[str]
    repeats: bool = False
    per_second: float | None = None


@dataclass(frozen=True)
class Seen:
    """Every answer as (seconds since the beginning, seconds that it took, status, number of the request)."""

    answers: list[tuple[float, float, int, int]] = field(default_factory=list)
    refused_connections: int = 0


class Crowd:
    """All connections of a plan."""

    def __init__(self, plan: Plan) -> None:
        self.plan, self.answers, self.lost = plan, list[tuple[float, float, int, int]](), 0
        self.interval = plan.connections / plan.per_second if plan.per_second else 0.0
        requests = [request.encode() for request in plan.requests]
        numbered = list(enumerate(requests))
        self._left: Iterator[tuple[int, bytes]] = cycle(numbered) if plan.repeats else iter(numbered)
        self.started = 0.0

    async def run(self) -> Seen:
        """Everything of the plan."""
        self.started = time.perf_counter()
        clients = [asyncio.create_task(self._ask(number)) for number in range(self.plan.connections)]
        await asyncio.wait(clients, timeout=self.plan.seconds + LAST_SECONDS_MAX)
        return Seen(self.answers, self.lost)

    def next_request(self) -> tuple[int, bytes] | None:
        """What is sent next, and its number; None at the end."""
        if time.perf_counter() - self.started >= self.plan.seconds:
            return None
        return next(self._left, None)

    async def _ask(self, number: int) -> None:
        loop, plan = asyncio.get_running_loop(), self.plan
        address = plan.addresses[number % len(plan.addresses)]
        due = self.started + self.interval * number / plan.connections
        while time.perf_counter() - self.started < plan.seconds:
            try:
                _, client = await loop.create_connection(
                    lambda: Client(self, due), "127.0.0.1", plan.port, local_addr=(address, 0)
                )
                await client.ended
            except OSError:
                pass
            else:
                if client.is_done:
                    return
            self.lost += 1
            await asyncio.sleep(_SECONDS_BETWEEN_ATTEMPTS)


class Client(asyncio.Protocol):
    """One connection, with one request at a time."""

    def __init__(self, crowd: Crowd, due: float) -> None:
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.is_done = False
        self._crowd, self._due, self._received = crowd, due, b""
        self._number, self._since = 0, 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the first request when it is due."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is one in all but its class
        self._wait()

    def data_received(self, data: bytes) -> None:
        """Note an answer that is complete, and go on."""
        self._received += data
        head, separator, body = self._received.partition(b"\r\n\r\n")
        if not separator or len(body) < _body_length(head):
            return
        now, status = time.perf_counter(), int(head[9:12])
        self._received = b""
        self._crowd.answers.append((now - self._crowd.started, now - self._since, status, self._number))
        self._due += self._crowd.interval
        self._wait(busy_until=now)

    def connection_lost(self, exc: Exception | None) -> None:
        """Let the crowd know."""
        del exc
        self._transport.abort()
        if not self.ended.done():
            self.ended.set_result(None)

    def _wait(self, busy_until: float = 0.0) -> None:
        """Send now what is due. What waited for the answer before it took its time from when it was due."""
        now = time.perf_counter()
        if self._crowd.interval and self._due > now:
            asyncio.get_running_loop().call_later(self._due - now, self._send, None)
        else:
            self._send(self._due if self._crowd.interval and busy_until else None)

    def _send(self, since: float | None) -> None:
        request = self._crowd.next_request()
        if request is None or self._transport.is_closing():
            self.is_done = request is None
            self._transport.close()
            return
        self._number, content = request
        self._since = since or time.perf_counter()
        self._transport.write(content)


def _body_length(head: bytes) -> int:
    """The length of an answer's body; one without a length has none (204, 304)."""
    before, name, after = head.lower().partition(_LENGTH)
    del before
    return int(after.split(b"\r\n", 1)[0]) if name else 0


def main() -> None:
    crowd = Crowd(Plan(**json.loads(Path(sys.argv[1]).read_bytes())))
    print("ready", flush=True)
    sys.stdin.readline()
    print(json.dumps(asdict(uvloop.run(crowd.run()))))


if __name__ == "__main__":
    main()
