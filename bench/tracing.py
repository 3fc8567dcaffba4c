"""What traces and log lines cost: CPU microseconds of a single read, sent as in `request_cost.py`. `bench/tracing.py`.

The first row, compared with the same row of an earlier commit, is what they cost when they are off.
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
from typing import TYPE_CHECKING

import uvloop

from in_process import post, unlimited
from muniment.app import Application, build_context
from muniment.app.traced import traced
from muniment.evm.address import Address
from muniment.functions.store import NewFunction, insert
from muniment.ipfs.cid import Cid
from muniment.tracing.export import Exporter
from muniment.tracing.tracer import Tracer
from request_cost import CONNECTIONS, rounds_of
from samples import CID, INPUTS, SIGNER, signed_triggers

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from muniment.context import Context


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
    database, reader_for = traced(context.database, context.reader_for, tracer)
    tracer.start()
    return replace(context, tracer=tracer, database=database, reader_for=reader_for)


async def measure(url: str) -> dict[str, list[float]]:
    """Name to microseconds of CPU time, by round."""
    with TemporaryDirectory() as folder:
        settings = replace(unlimited(Path(folder)), log_level="error", rate_limit_client="6000000/60s")
        context = build_context(settings)
        await context.database.migrate()
        function = NewFunction(Cid.parse(CID).digest, bytes(32), dict(INPUTS), context.now_ms(), "{}")
        await context.database.write(lambda tx: insert(tx, function, Address.parse(SIGNER), "Benchmark", "1.0.0"))
        bodies = signed_triggers(range(CONNECTIONS))
        app = Application(context)
        await asyncio.gather(*(post(app, "/triggers", body) for body in bodies))
        targets = [f"/triggers/{json.loads(body)['sig']}" for body in bodies]
        recorded = with_traces(context, url, 1)
        found = {
            "off": await rounds_of(app, targets),
            "on, not recorded": await rounds_of(Application(with_traces(context, url, 0)), targets),
            "on, 1 % recorded": await rounds_of(Application(with_traces(context, url, 0.01)), targets),
            "on, all recorded": await rounds_of(Application(recorded), targets),
        }
        slow = replace(context, settings=replace(settings, log_requests="slow"))
        found["off, log_requests=slow"] = await rounds_of(Application(slow), targets)
        await context.database.close()
    return found


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
