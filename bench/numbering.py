"""What the sequencer costs beside the numbers of transactions: creates on PostgreSQL, in turns, in the same run.

Usage: numbering.py [--quick]. One process, then two, each on a database of its own for each way: creates per second by
the clock, and how long the slowest hundredth waits. Then the two forms that a sequencer can have, while somebody holds
an old snapshot, as a dump does: a lock with a counter beside it (ours), and a counter in a row.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from contextlib import ExitStack
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import asyncpg
import httpx2

from muniment.storage import numbering_of, open_database
from ours import deploy, muniment
from samples import signed_triggers
from server import Server, post

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))
# By name: type checking of this folder does not see that one.
_postgres: Any = import_module("postgres")

ROUNDS: Final = 11
CREATES: Final = 1_000
CONNECTIONS: Final = 32
WAYS: Final = ("transactions", "sequencer")
# Transactions, each of which takes one number, while the snapshot is held.
_STEP: Final = 10_000
_COUNTED: Final = """
CREATE TABLE counter (id bigint PRIMARY KEY, last bigint NOT NULL);
INSERT INTO counter VALUES (1, 0);
CREATE FUNCTION counted() RETURNS bigint LANGUAGE sql VOLATILE
AS 'UPDATE counter SET last = last + 1 WHERE id = 1 RETURNING last';
"""

Figures = dict[str, list[float]]


class _Timed(asyncio.Protocol):
    """Sends requests one after the other over one connection, and notes how long each answer took."""

    def __init__(self, requests: list[bytes], seconds: list[float]) -> None:
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._requests, self._seconds, self._received = requests, seconds, b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the first request."""
        self._transport: Any = transport
        self._send()

    def data_received(self, data: bytes) -> None:
        """Note an answer that is complete, and send the next request."""
        self._received += data
        head, separator, body = self._received.partition(b"\r\n\r\n")
        if not separator or len(body) < int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0]):
            return
        assert head.startswith(b"HTTP/1.1 200 "), self._received
        self._seconds.append(time.perf_counter() - self._sent_at)
        self._received = b""
        self._send()

    def connection_lost(self, exc: Exception | None) -> None:
        """An early end is an error."""
        if not self.done.done():
            self.done.set_exception(exc or ConnectionError("the server closed the connection"))

    def _send(self) -> None:
        if not self._requests:
            self.done.set_result(None)
            self._transport.close()
            return
        self._sent_at = time.perf_counter()
        self._transport.write(self._requests.pop())


async def _send(servers: list[Server], requests: list[bytes]) -> tuple[float, float]:
    """Answers per second, and milliseconds of the slowest hundredth."""
    loop, seconds, count = asyncio.get_running_loop(), list[float](), len(requests)
    ports = [int(server.url.rpartition(":")[2]) for server in servers]
    began = time.perf_counter()
    made = [
        await loop.create_connection(lambda: _Timed(requests, seconds), "127.0.0.1", ports[number % len(ports)])
        for number in range(CONNECTIONS)
    ]
    await asyncio.gather(*(protocol.done for _, protocol in made))
    per_second = count / (time.perf_counter() - began)
    return per_second, statistics.quantiles(seconds, n=100)[-1] * 1_000


def measure_creates(cluster: Any, folder: Path, processes: int, *, rounds: int, creates: int) -> None:
    """Print creates per second and p99 for each way, and their ratios."""
    rates: Figures = defaultdict(list)
    waits: Figures = defaultdict(list)
    with ExitStack() as stack:
        services: dict[str, list[Server]] = {}
        for way in WAYS:
            url = asyncio.run(_database(cluster, f"{way}_{processes}", way))
            starting = [muniment(folder / f"{way}-{number}", database_url=url) for number in range(processes)]
            services[way] = [stack.enter_context(each) for each in starting]
        cids = {way: _deployed(each[0]) for way, each in services.items()}
        for number in range(rounds + 1):
            for way in WAYS[:: 1 if number % 2 else -1]:
                bodies = signed_triggers(range(number * creates, (number + 1) * creates), cids[way])
                rate, wait = asyncio.run(_send(services[way], [post("/triggers", body) for body in bodies]))
                if number:  # the first round warms up
                    rates[way].append(rate)
                    waits[way].append(wait)
    _show(f"creates per second, {processes} process(es)", rates)
    _show(f"p99 of a create in ms, {processes} process(es)", waits)


def _deployed(server: Server) -> str:
    with httpx2.Client(base_url=server.url) as client:
        return deploy(client)


async def _database(cluster: Any, name: str, way: Any) -> str:
    url: str = await cluster.create_database(name)
    database = open_database(url, data_dir=Path())
    await database.migrate()
    await database.close()
    numbering = numbering_of(url)
    assert numbering
    await numbering.use(way)
    return url


def _show(what: str, figures: Figures) -> None:
    ratios = [after / before for before, after in zip(*(figures[way] for way in WAYS), strict=True)]
    medians = ", ".join(f"{way} {statistics.median(figures[way]):,.1f}" for way in WAYS)
    print(
        f"{what}: {medians}; ratio {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})", flush=True
    )


async def measure_snapshot(cluster: Any, *, steps: int) -> None:
    """Print microseconds for each transaction of one number, as the held snapshot grows old."""
    url = await _database(cluster, "snapshot", "sequencer")
    driver: Any = asyncpg
    reader, writer = await driver.connect(url), await driver.connect(url)
    await writer.execute(_COUNTED + "SET synchronous_commit = off")
    async with reader.transaction(isolation="repeatable_read"):
        await reader.fetch("SELECT count(*) FROM counter")
        for what, call in (("lock and counter", "next_seq"), ("counter in a row", "counted")):
            for number in range(1, steps + 1):
                micros = await _micros(writer, call)
                print(f"{what}, after {number * _STEP:,} transactions: {micros:,.0f} µs each", flush=True)
    await reader.close()
    await writer.close()


async def _micros(writer: Any, call: str) -> float:
    """Microseconds of a transaction, in the server alone: no round trips, and no wait for the disk."""
    began = time.perf_counter()
    await writer.execute(f"DO $$ BEGIN FOR i IN 1..{_STEP} LOOP PERFORM {call}(); COMMIT; END LOOP; END $$")
    return (time.perf_counter() - began) / _STEP * 1e6


def main() -> None:
    is_quick = "--quick" in sys.argv
    rounds, creates = (1, 400) if is_quick else (ROUNDS, CREATES)
    with tempfile.TemporaryDirectory() as folder, _postgres.Cluster(fsync=True) as cluster:
        for processes in (1, 2):
            measure_creates(cluster, Path(folder), processes, rounds=rounds, creates=creates)
        asyncio.run(measure_snapshot(cluster, steps=1 if is_quick else 3))


if __name__ == "__main__":
    main()
