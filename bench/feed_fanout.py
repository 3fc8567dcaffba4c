"""The time from a change to the clients of the change feed: 1,000 streams of one process, none of them with a filter.

Usage: feed_fanout.py [--quick]. Each event is a new trigger: it is sent, and answered when it is on the disk. The time
begins when its request is sent, so it has the create too, and ends when the event arrives at a stream. The streams are
those of the process that stores the trigger, or of another one on the same database. All clients are in this process,
which shares the machine with the service. Events come alone, or some of them before the service has rested from the
last one: it rests three times as long as it takes to send one.
"""

from __future__ import annotations

import asyncio
import selectors
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import httpx2

from samples import signed_triggers
from server import NO_LIMITS, Server, deploy, post, serve_command
from traffic import FULL, QUICK, Scale

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))
# By name: type checking of this folder does not see that one.
_postgres: Any = import_module("postgres")

STREAMS: Final = 1_000
_EVENTS, _EVENTS_QUICK = 40, 15
# A client may have 512 connections, so some addresses of this machine stand for clients.
_ADDRESSES: Final = 4
# The three limits that are lower for the clients of a real service.
_LIMITS: Final = NO_LIMITS | {
    "MUNIMENT_FEED_STREAMS_MAX": str(STREAMS),
    "MUNIMENT_FEED_STREAMS_PER_CLIENT_MAX": str(STREAMS),
    "MUNIMENT_CONNECTIONS_MAX": str(STREAMS + 100),
    "MUNIMENT_MIGRATE_AT_START": "true",
}
# From the arrival of an event at all streams to the next one.
_ALONE_SECONDS: Final = 0.3
_CLOSE_SECONDS: Final = 0.05
_SECONDS_MAX: Final = 30
ENGINES: Final = ("SQLite", "PostgreSQL")


def name_of(engine: str, *, across: bool) -> str:
    """The name of a time in the list of ratios."""
    return f"feed: p99 in ms to {STREAMS:,} streams, {engine}, {'of another process' if across else 'one process'}"


def measure(scale: Scale) -> dict[str, list[float]]:
    """The 99th percentile of each round, in milliseconds, by name. Prints the medians as well."""
    found: dict[str, list[float]] = {}
    events, rounds = (_EVENTS_QUICK, 1) if scale.is_quick else (_EVENTS, 3)
    print(f"\nThe change feed: milliseconds from a create to each of {STREAMS:,} streams; p50, p99")
    for engine in ENGINES:
        with _services(engine) as (writing, other):
            numbers = iter(range(10**9))
            cid = deployed(writing)
            for across in (False, True):
                following, name = other if across else writing, name_of(engine, across=across)
                found[name] = _show(
                    name, [_round(writing, following, cid, numbers, events, _ALONE_SECONDS) for _ in range(rounds)]
                )
                close = [_round(writing, following, cid, numbers, events, _CLOSE_SECONDS) for _ in range(rounds)]
                _show(f"{name}, {1_000 * _CLOSE_SECONDS:.0f} ms later", close)
    return found


def _show(name: str, rows: list[tuple[float, float]]) -> list[float]:
    """Print a line of medians; the 99th percentiles."""
    p99s = [p99 for _, p99 in rows]
    print(f"  {name:88}{statistics.median(p50 for p50, _ in rows):8.1f}{statistics.median(p99s):8.1f}")
    return p99s


@contextmanager
def _services(engine: str) -> Generator[tuple[Server, Server]]:
    """Two services on one new database, each with one process."""
    with ExitStack() as stack:
        data, database = Path(stack.enter_context(tempfile.TemporaryDirectory())), dict[str, str]()
        if engine == "PostgreSQL":
            cluster = stack.enter_context(_postgres.Cluster(fsync=True))
            database["MUNIMENT_DATABASE_URL"] = asyncio.run(cluster.create_database("feed"))
        services = [Server(serve_command(data), _LIMITS | database) for _ in range(2)]
        yield stack.enter_context(services[0]), stack.enter_context(services[1])


def deployed(service: Server) -> str:
    """The CID of a new function."""
    with httpx2.Client(base_url=service.url) as client:
        return deploy(client)


def _round(
    writing: Server, following: Server, cid: str, numbers: Iterator[int], events: int, pause_s: float
) -> tuple[float, float]:
    """Median and 99th percentile of a round, in milliseconds."""
    waits: list[float] = []
    bodies = signed_triggers([next(numbers) for _ in range(events)], cid)
    with selectors.DefaultSelector() as selector, ExitStack() as stack:
        for number in range(STREAMS):
            stream = stack.enter_context(_stream(following.url, f"127.0.0.{2 + number % _ADDRESSES}"))
            selector.register(stream, selectors.EVENT_READ)
        writer = stack.enter_context(connect(writing.url, "127.0.0.1"))
        time.sleep(1)
        _drain(selector)
        for body in bodies:
            writer.sendall(post("/triggers", body))
            begun = time.perf_counter()
            waits += _arrivals(selector, begun)
            assert writer.recv(65_536).startswith(b"HTTP/1.1 200")
            time.sleep(pause_s)
    ordered = sorted(waits)
    return 1_000 * statistics.median(ordered), 1_000 * ordered[len(ordered) * 99 // 100]


def connect(url: str, address: str) -> socket.socket:
    """A connection from this address of the machine."""
    host, _, port = url.removeprefix("http://").partition(":")
    return socket.create_connection((host, int(port)), source_address=(address, 0))


def _stream(url: str, address: str) -> socket.socket:
    """A stream whose head and first block have come."""
    stream = connect(url, address)
    stream.sendall(b"GET /events/stream HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
    came = b""
    while b"\nid: " not in came:
        came += stream.recv(65_536)
    assert came.startswith(b"HTTP/1.1 200")
    stream.setblocking(False)
    return stream


def _arrivals(selector: selectors.BaseSelector, begun: float) -> list[float]:
    """The seconds until each stream has the next event. A block without data is the service's sign of life."""
    waits: list[float] = []
    while len(waits) < STREAMS:
        ready = selector.select(_SECONDS_MAX)
        assert ready, f"{STREAMS - len(waits)} streams got no event"
        for key, _ in ready:
            piece = key.fileobj.recv(65_536)  # pyright: ignore[reportAttributeAccessIssue, reportUnknownVariableType, reportUnknownMemberType] - a socket
            if b"\ndata: " in piece:
                waits.append(time.perf_counter() - begun)
    return waits


def _drain(selector: selectors.BaseSelector) -> None:
    for key, _ in selector.select(0):
        key.fileobj.recv(65_536)  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType] - a socket


if __name__ == "__main__":
    measure(QUICK if "--quick" in sys.argv[1:] else FULL)
