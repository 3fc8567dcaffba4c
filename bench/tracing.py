"""CPU microseconds of a single read with traces and log lines off, on and recorded, without the kernel.

Connections are fed by hand and write to a transport that only counts. All code between is the service's own.
"""

from __future__ import annotations

import asyncio
import json
import random
import statistics
import sys
import time
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, cast

import uvloop

from in_process import post, unlimited
from muniment.protocol.evm.address import Address
from muniment.protocol.ipfs.cid import Cid
from muniment.service.app import Application, build_context
from muniment.service.app.wiring import traced
from muniment.service.resources.functions.store import NewFunction, insert
from muniment.service.running.tracing.tracer import Exporter, Tracer
from muniment.service.server.connection import Connection as ServerConnection
from muniment.service.server.run import settle_memory
from muniment.service.server.shared import Answering, Shared
from samples import CID, INPUTS, SIGNER, signed_triggers

if TYPE_CHECKING:
    from collections.abc import Sequence
    from multiprocessing.connection import Connection

    from muniment.service.context import Context


CONNECTIONS, TURNS, ROUNDS = 32, 200, 9


class _Sink(BaseHTTPRequestHandler):
    """Takes spans and drops them."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


def collect(port: Connection) -> None:
    """A collector in a process of its own, so that its CPU time is not counted."""
    server = HTTPServer(("127.0.0.1", 0), _Sink)
    port.send(server.server_address[1])
    server.serve_forever()


def with_traces(context: Context, url: str, ratio: float) -> Context:
    """The context with traces that no limit bounds."""
    tracer = Tracer(Exporter(url), ratio, chance=random.random, now_s=time.monotonic, per_second_max=10**9)
    database, list_reader = traced(context.database, context.list_reader, tracer)
    tracer.start()
    return replace(context, tracer=tracer, database=database, list_reader=list_reader)


async def measure(url: str) -> dict[str, list[float]]:
    """Name to microseconds of CPU time, by round."""
    with TemporaryDirectory() as folder:
        settings = replace(unlimited(Path(folder)), log_level="error", rate_limit_client="6000000/60s")
        context = build_context(settings)
        await context.database.migrate()
        function = NewFunction(Cid.parse(CID).digest, bytes(32), dict(INPUTS), context.clock.now_ms(), "{}")
        await context.database.write(lambda tx: insert(tx, function, Address.parse(SIGNER), "Benchmark", "1.0.0"))
        bodies = signed_triggers(range(CONNECTIONS))
        app = Application(context)
        await asyncio.gather(*(post(app, "/triggers", body) for body in bodies))
        targets = [f"/triggers/{json.loads(body)['sig']}" for body in bodies]
        settle_memory()
        recorded = with_traces(context, url, 1)
        found = {
            "off": await _rounds(app, targets),
            "on, not recorded": await _rounds(Application(with_traces(context, url, 0)), targets),
            "on, 1 % recorded": await _rounds(Application(with_traces(context, url, 0.01)), targets),
            "on, all recorded": await _rounds(Application(recorded), targets),
        }
        slow = replace(context, settings=replace(settings, log_requests="slow"))
        found["off, log_requests=slow"] = await _rounds(Application(slow), targets)
        await context.database.close()
    return found


async def _rounds(application: Answering, targets: list[str]) -> list[float]:
    """Each connection asks for its target, all in one turn of the event loop, again and again."""
    loop = asyncio.get_running_loop()
    if sys.version_info >= (3, 12):  # as the server does where it can
        loop.set_task_factory(asyncio.eager_task_factory)
    shared = Shared(application=application, now_s=time.time, head_seconds_max=30, connections_max=CONNECTIONS)
    return await _rounds_of([ServerConnection(shared, loop, set(), set()) for _ in targets], targets)


async def _rounds_of(connections: Sequence[asyncio.Protocol], targets: list[str]) -> list[float]:
    transports = [_Counting() for _ in targets]
    for connection, transport in zip(connections, transports, strict=True):
        connection.connection_made(cast("asyncio.Transport", transport))
    requests = [f"GET {target} HTTP/1.1\r\nHost: 127.0.0.1:8787\r\n\r\n".encode() for target in targets]
    micros = [await _micros(connections, requests) for _ in range(ROUNDS + 1)][1:]
    assert {transport.answers for transport in transports} == {TURNS * (ROUNDS + 1)}
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


def main() -> None:
    """Print a row for each case."""
    spawn = get_context("spawn")
    here, there = spawn.Pipe()
    collector = spawn.Process(target=collect, args=(there,), daemon=True)
    collector.start()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        found = runner.run(measure(f"http://127.0.0.1:{here.recv()}/v1/traces"))
    for name, micros in found.items():
        print(f"{name:24} median {statistics.median(micros):6.1f} µs, least {min(micros):6.1f} µs a request")
    collector.terminate()


if __name__ == "__main__":
    sys.exit(main())
