"""What a request costs in the server without the kernel: CPU microseconds a request. Also alone: `request_cost.py`.

Connections are fed by hand and write to a transport that only counts. Everything between is the service's own: parser,
id, router, rate limit, header fields; for the first figure a handler that has its answer, for the others the real one.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, cast

import uvloop
from httptools import HttpRequestParser

from in_process import post, unlimited
from muniment.app import Application, build_context
from muniment.context import Context
from muniment.evm.address import Address
from muniment.evm.signature import Signature
from muniment.functions.store import NewFunction, insert
from muniment.http.envelope import Envelope
from muniment.http.operation import operation
from muniment.http.reply import JSON, Ready
from muniment.http.request import Limits, Request
from muniment.http.routing import Router
from muniment.ipfs.cid import Cid
from muniment.limits.costs import READ, Shed
from muniment.server.connection import Connection, begin
from muniment.server.run import settle_memory
from muniment.server.shared import Answering, Shared
from ratios import OWN_COST
from samples import CID, INPUTS, SIGNER, signed_triggers

CONNECTIONS, TURNS, ROUNDS = 32, 200, 9
BARE = "a protocol that only parses, makes a task and answers, µs"
ONE, LIST = "a single read with its row, µs", "a page of ten with its rows, µs"
# As one trigger has: a kilobyte, with its tag.
_ANSWER: Final[Ready[Any]] = Ready(b"x" * 1_024, (JSON, (b"etag", b'"0123456789abcdef0123456789abcdef-active"')))


@operation("GET", "/triggers/{sig}", cost=READ, sheds=Shed.READ)
async def get_answer(context: Context, request: Request, sig: Signature) -> Ready[Any]:
    """Like a single read, but for the row."""
    del context, request, sig
    return _ANSWER


def measure() -> dict[str, list[float]]:
    """Name to microseconds of CPU time, by round."""
    collected = gc.get_threshold()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        try:
            return runner.run(_measure())
        finally:
            gc.set_threshold(*collected)
            gc.unfreeze()


async def _measure() -> dict[str, list[float]]:
    with TemporaryDirectory() as folder:
        settings = replace(unlimited(Path(folder)), log_level="error", rate_limit_client="6000000/60s")
        context = build_context(settings)
        await context.database.migrate()
        function = NewFunction(Cid.parse(CID).digest, bytes(32), dict(INPUTS), context.now_ms(), "{}")
        await context.database.write(lambda tx: insert(tx, function, Address.parse(SIGNER), "Benchmark", "1.0.0"))
        app = Application(context)
        bodies = signed_triggers(range(CONNECTIONS))
        await asyncio.gather(*(post(app, "/triggers", body) for body in bodies))
        targets = [f"/triggers/{json.loads(body)['sig']}" for body in bodies]
        envelope = Envelope(
            Router([get_answer]), context, app.admission, limits=Limits(65_536, 30), metrics=context.metrics,
            random_bytes=os.urandom, addresses=context.clients, note_writer=None, observe=None,
        )  # fmt: skip
        settle_memory()
        found = {
            BARE: await _rounds_of([Bare() for _ in targets], targets),
            OWN_COST: await rounds_of(envelope, targets),
            ONE: await rounds_of(app, targets),
            LIST: await rounds_of(app, ["/triggers"] * CONNECTIONS),
        }
        await context.database.close()
    return found


async def rounds_of(application: Answering, targets: list[str], *, rounds: int = ROUNDS) -> list[float]:
    """Each connection asks for its target, all in one turn of the event loop, again and again."""
    loop = asyncio.get_running_loop()
    if sys.version_info >= (3, 12):  # as the server does where it can
        loop.set_task_factory(asyncio.eager_task_factory)
    shared = Shared(application=application, now_s=time.time, head_seconds_max=30, connections_max=CONNECTIONS)
    return await _rounds_of([Connection(shared, loop, set(), set()) for _ in targets], targets, rounds)


async def _rounds_of(connections: Sequence[asyncio.Protocol], targets: list[str], rounds: int = ROUNDS) -> list[float]:
    transports = [_Counting() for _ in targets]
    for connection, transport in zip(connections, transports, strict=True):
        connection.connection_made(cast("asyncio.Transport", transport))
    requests = [f"GET {target} HTTP/1.1\r\nHost: 127.0.0.1:8787\r\n\r\n".encode() for target in targets]
    micros = [await _micros(connections, requests) for _ in range(rounds + 1)][1:]
    assert {transport.answers for transport in transports} == {TURNS * (rounds + 1)}
    for connection in connections:
        connection.connection_lost(None)
    return micros


async def _micros(connections: Sequence[asyncio.Protocol], requests: list[bytes]) -> float:
    started = time.process_time_ns()
    for _ in range(TURNS):
        for connection, request in zip(connections, requests, strict=True):
            connection.data_received(request)
        await asyncio.sleep(0)
    return (time.process_time_ns() - started) / 1_000 / TURNS / len(connections)


class Bare(asyncio.Protocol):
    """The least that a server on this parser does: no router, no ids, no limits, no deadlines."""

    _transport: asyncio.Transport

    def __init__(self) -> None:
        self._parser = HttpRequestParser(self)
        self._fields: list[tuple[bytes, bytes]] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has connected."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Bytes have come."""
        self._parser.feed_data(data)

    def on_url(self, target: bytes) -> None:
        """A part of the target."""

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header field."""
        self._fields.append((name.lower(), value))

    def on_message_complete(self) -> None:
        """A request is complete."""
        self._fields = []
        begin(self._answer())

    async def _answer(self) -> None:
        body = _ANSWER.body
        self._transport.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))


class _Counting:
    """A transport that counts the answers, all of which are good."""

    def __init__(self) -> None:
        self.answers = 0

    def write(self, data: bytes) -> None:
        assert data.startswith(b"HTTP/1.1 200 ")
        self.answers += 1

    def get_extra_info(self, name: str) -> Any:
        return ("127.0.0.1", 4711) if name == "peername" else None

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return False


if __name__ == "__main__":
    for name, micros in measure().items():
        print(f"{name:50}{statistics.median(micros):8.2f}  ({min(micros):.2f} to {max(micros):.2f})")
