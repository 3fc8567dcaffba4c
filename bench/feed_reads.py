"""The time of a read of a process that sends events to 10,000 streams: an event meets 1,000 of them.

Usage: feed_reads.py [--quick]. A client reads a listing again and again; another one creates five triggers a second.
They do the same before there are streams. The clients of the streams are a process of their own, on the same machine.
"""

from __future__ import annotations

import random
import selectors
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from feed_fanout import connect, deployed
from ours import NO_LIMITS, serve_command
from samples import signed_triggers
from server import Server, post

STREAMS: Final = 10_000
MEETING: Final = 1_000
_READS, _READS_QUICK = 4_000, 800
# One in so many reads comes with a create: five a second.
_READS_PER_CREATE: Final = 20
_PAUSE_SECONDS: Final = 0.01
# A client may have 512 connections, so some addresses of this machine stand for clients.
_PER_ADDRESS: Final = 500
_LIMITS: Final = NO_LIMITS | {
    "MUNIMENT_FEED_STREAMS_MAX": str(STREAMS),
    "MUNIMENT_FEED_STREAMS_PER_CLIENT_MAX": str(STREAMS),
    "MUNIMENT_CONNECTIONS_MAX": str(STREAMS + 100),
}
_LISTING: Final = b"GET /functions?limit=1 HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"


def measure(reads: int) -> None:
    """Print median, 99th percentile and maximum of the reads, in milliseconds."""
    with tempfile.TemporaryDirectory() as folder, Server(serve_command(Path(folder)), _LIMITS) as service:
        cid = deployed(service)
        count = 2 * reads // _READS_PER_CREATE
        bodies = signed_triggers(list(range(count)), cid)
        print(f"A read of a process, in milliseconds: p50, p99, maximum of {reads:,}")
        _show("without streams", _reads(service.url, bodies[: count // 2], reads))
        with _streams(service.url):
            _show(f"beside {STREAMS:,} streams, {MEETING:,} of which get each event",
                  _reads(service.url, bodies[count // 2 :], reads))  # fmt: skip


def _show(name: str, seconds: list[float]) -> None:
    ordered = sorted(1_000 * each for each in seconds)
    print(f"  {name:60}{ordered[len(ordered) // 2]:8.1f}{ordered[len(ordered) * 99 // 100]:8.1f}{ordered[-1]:8.1f}")


def _reads(url: str, bodies: list[bytes], reads: int) -> list[float]:
    """The seconds of each read. A trigger is created at some of them, by another client."""
    found: list[float] = []
    with connect(url, "127.0.0.1") as reader, connect(url, "127.0.0.1") as writer:
        for number in range(reads):
            body = bodies[number // _READS_PER_CREATE] if number % _READS_PER_CREATE == 0 else None
            if body is not None:
                writer.sendall(post("/triggers", body))
                time.sleep(random.uniform(0, 0.1))  # the read falls anywhere in the round of the event
            begun = time.perf_counter()
            reader.sendall(_LISTING)
            assert reader.recv(65_536).startswith(b"HTTP/1.1 200")
            found.append(time.perf_counter() - begun)
            if body is not None:
                assert writer.recv(65_536).startswith(b"HTTP/1.1 200")
            time.sleep(_PAUSE_SECONDS)
    return found


@contextmanager
def _streams(url: str) -> Generator[None]:
    """A process with the clients of the streams."""
    command = [sys.executable, __file__, "--streams", url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "open\n"
            yield
        finally:
            process.kill()


def _hold_streams(url: str) -> None:
    """Open the streams, say so, and take what comes until this process is killed."""
    with selectors.EpollSelector() as selector:
        for number in range(STREAMS):
            stream = connect(url, f"127.0.0.{2 + number // _PER_ADDRESS}")
            query = "" if number % (STREAMS // MEETING) == 0 else "?types=intent.created"
            stream.sendall(f"GET /events/stream{query} HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n".encode())
            assert stream.recv(65_536).startswith(b"HTTP/1.1 200")
            stream.setblocking(False)
            selector.register(stream, selectors.EVENT_READ)
        print("open", flush=True)
        while True:
            for key, _ in selector.select():
                assert key.fileobj.recv(65_536)  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType] - a socket


if __name__ == "__main__":
    if sys.argv[1:2] == ["--streams"]:
        _hold_streams(sys.argv[2])
    else:
        measure(_READS_QUICK if "--quick" in sys.argv[1:] else _READS)
