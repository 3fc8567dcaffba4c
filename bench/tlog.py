"""What the transparency log costs: a create with and without it, and how far the integrator is behind 5,000 a second.

Usage: tlog.py [--quick]; with --quick for five seconds in place of twenty.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import statistics
import sys
import tempfile
import time
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import httpx2

from muniment.app import Application, build_context
from muniment.context import Context
from muniment.evm.address import Address
from muniment.evm.signature import Signature
from muniment.settings import Settings
from muniment.tlog.sequencing import store
from muniment.tlog.sequencing.integrator import Integrator
from muniment.triggers import store as triggers
from muniment.triggers.store import NewRow
from muniment.wire import iso_time

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))
# By name: type checking of this folder does not see those.
_builders: Any = import_module("builders")
_postgres: Any = import_module("postgres")

RATE: Final = 5_000
_CREATES: Final = 100
_ROUNDS: Final = 8
_KEY: Final = "11" * 32
_BATCH_S: Final = 0.1
# As many creates as wait for a commit under load.
_GROUP: Final = 500


def _settings(folder: Path, url: str, tlog: str) -> Settings:
    return Settings(
        data_dir=folder,
        log_level="error",
        tlog=tlog,
        tlog_name="bench.example.org",
        tlog_key=_KEY,
        rate_limit_client="off",
        rate_limit_login="off",
        rate_limit_owner="off",
        rate_limit_stop="off",
        **_place(url),
    )


def _place(url: str) -> dict[str, Any]:
    return {"database_url": url} if url else {}


def _row(number: int, now_ms: int) -> NewRow:
    """A trigger as a process stores it. Its record has what an entry takes from it."""

    def record(created_at_ms: int) -> str:
        cid, when = "QmRwFzcSwmkbWJuQsFaHcAGvykRU3q82JiYfwGaswNKFG4", iso_time(created_at_ms)
        return f'{{"functionCid":"{cid}","description":"Every six hours","createdAt":"{when}"}}'

    return NewRow(
        sig=Signature("0x" + number.to_bytes(32).hex() * 2 + "1b"), signer=Address.from_raw(number.to_bytes(20)),
        digest=number.to_bytes(32), function_digest=bytes(32), protocol="Mimic", end_date_ms=0,
        created_at_ms=now_ms, record=record,
    )  # fmt: skip


async def _write(context: Context, first: int, count: int) -> None:
    """Write rows in groups, as creates that wait for one commit do."""
    now_ms, write = context.now_ms(), context.database.write
    rows = [_row(number, now_ms) for number in range(first, first + count)]
    await asyncio.gather(*(write(lambda tx, row=row: triggers.insert(tx, row)) for row in rows))


def _feed(folder: Path, url: str, seconds: int) -> None:
    """In a process of its own: RATE rows a second."""

    async def feed() -> None:
        context = build_context(_settings(folder, url, "off"))
        begun, written = time.monotonic(), 1
        while (elapsed := time.monotonic() - begun) < seconds:
            due = min(int(RATE * elapsed) - written, _GROUP)
            if due > 0:
                await _write(context, written, due)
                written += due
            else:
                await asyncio.sleep(_BATCH_S)
        await context.database.close()

    asyncio.run(feed())


async def _follow(folder: Path, url: str, seconds: int) -> None:
    """Print how far the integrator is behind, and its CPU for a leaf."""
    context = build_context(_settings(folder, url, "on"))
    await context.database.migrate()
    integrator = Integrator(context)
    await integrator.turn()
    feeder = multiprocessing.get_context("spawn").Process(target=_feed, args=(folder, url, seconds))
    feeder.start()
    lags, begun = list[float](), time.process_time()
    while feeder.is_alive():
        await asyncio.sleep(context.settings.tlog_interval_s)
        await integrator.turn()
        lags.append(await _lag_s(context))
    cpu = time.process_time() - begun
    feeder.join()
    epoch = await store.newest(context.database)
    assert epoch is not None
    assert epoch.state == "open", epoch.why
    behind = f"behind by {statistics.median(lags):.1f} s (median), {max(lags):.1f} s (most)"
    rate = f"{epoch.note_size / seconds:,.0f} entries a second written and signed"
    print(f"    {rate}, {behind}; {1e6 * cpu / epoch.note_size:.0f} us of CPU for an entry")
    await integrator.close()
    await context.database.close()


async def _lag_s(context: Context) -> float:
    """The age of the oldest row that no checkpoint has."""
    epoch = await store.newest(context.database)
    assert epoch is not None
    rows = await context.database.fetch(
        "SELECT created_at_ms FROM triggers WHERE seq > ? ORDER BY seq LIMIT 1", (epoch.after_trigger,)
    )
    return (context.now_ms() - rows[0][0]) / 1_000 if rows else 0.0


async def _creates(folder: Path, url: str) -> None:
    """Print the CPU of a create with the log on, over that with the log off, of interleaved rounds."""
    took: dict[str, list[float]] = {"off": [], "on": []}
    context = build_context(_settings(folder, url, "off"))
    await context.database.migrate()
    async with _client(context) as client:
        cid = await _builders.deploy(client)
        for round_ in range(_ROUNDS):
            for at, (tlog, times) in enumerate(took.items()):
                first = (2 * round_ + at) * _CREATES
                drafts = [_builders.TriggerDraft(cid, version=f"{first + n}.0.0") for n in range(_CREATES)]
                bodies = [each.signed() for each in drafts]
                async with _client(replace(context, settings=replace(context.settings, tlog=tlog))) as writer:
                    begun = time.process_time()
                    for body in bodies:
                        assert (await writer.post("/triggers", json=body)).status_code == 200
                    times.append((time.process_time() - begun) / _CREATES)
    medians = {tlog: statistics.median(times) for tlog, times in took.items()}
    shown = ", ".join(f"{tlog} {1e6 * seconds:.0f} us" for tlog, seconds in medians.items())
    print(f"    a create: {shown}; on / off {medians['on'] / medians['off']:.2f}")
    await context.database.close()


def _client(context: Context) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(transport=httpx2.ASGITransport(app=Application(context)), base_url="http://bench")


async def _measure(name: str, urls: list[str], seconds: int) -> None:
    print(name)
    with tempfile.TemporaryDirectory() as folder:
        await _follow(Path(folder) / "follow", urls[0], seconds)
        await _creates(Path(folder) / "creates", urls[1])


def main() -> None:
    """Measure on SQLite, then on PostgreSQL."""
    seconds = 5 if "--quick" in sys.argv else 20
    asyncio.run(_measure("SQLite", ["", ""], seconds))
    with _postgres.Cluster(fsync=True) as cluster:
        urls = [asyncio.run(cluster.create_database(each)) for each in ("follow", "creates")]
        asyncio.run(_measure("PostgreSQL", urls, seconds))


if __name__ == "__main__":
    main()
