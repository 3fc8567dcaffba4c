"""What the event of a create costs, in turns with creates that store none. Runs alone.

Usage: events_cost.py. Microseconds of one write among many at once, as the store makes it after the checks of a
request: CPU of the process on SQLite; time by the clock on PostgreSQL, whose server shares the machine. Then the same
as a part of a whole create, whose CPU is measured in the same run without a server.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from importlib import import_module
from pathlib import Path
from typing import Any, Final, LiteralString, cast

import asyncpg

from in_process import post, unlimited
from muniment.protocol.evm.address import Address
from muniment.protocol.evm.signature import Signature
from muniment.protocol.ipfs.cid import Cid
from muniment.service.app import Application, build_context
from muniment.service.resources.functions.store import NewFunction, insert
from muniment.service.resources.triggers import store
from muniment.service.storage import open_database
from muniment.service.storage.database import Database, Transaction
from samples import CID, INPUTS, SIGNER, signed_triggers

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))
# By name: type checking of this folder does not see that one.
_postgres: Any = import_module("postgres")

_ROUNDS: Final = 15
_WRITES: Final = 960
# As many connections as in the other measurements.
_AT_ONCE: Final = 32
_RECORD: Final = json.dumps({"record": "." * 1_400})
_TRIGGER: Final = "SELECT sql FROM sqlite_master WHERE name = 'triggers_created_event'"
_NUMBERS: Final = itertools.count(1)
_OWNER: Final = Address.parse(SIGNER)
_Work = Callable[[Transaction], Awaitable[object]]


def main() -> None:
    """Print every figure: the median, the least and the most of the rounds."""
    created, with_event, without = asyncio.run(_on_sqlite())
    _print("SQLite: a create, CPU", created)
    _print("SQLite: its write with the event, CPU", with_event)
    _print("SQLite: its write without, CPU", without)
    more = statistics.median(with_event) - statistics.median(without)
    print(f"{'SQLite: the event, part of a create':44}{more / (statistics.median(created) - more):8.1%}")
    with_event, without = asyncio.run(_on_postgres())
    _print("PostgreSQL: a write with the event, clock", with_event)
    _print("PostgreSQL: a write without, clock", without)
    ratios = [one / other for one, other in zip(with_event, without, strict=True)]
    print(f"{'PostgreSQL: the ratio':44}{statistics.median(ratios):8.3f}")


async def _on_sqlite() -> tuple[list[float], list[float], list[float]]:
    found: tuple[list[float], list[float], list[float]] = ([], [], [])
    with tempfile.TemporaryDirectory() as folder:
        context = build_context(unlimited(Path(folder)))
        database, app = context.database, Application(context)
        await database.migrate()
        new = NewFunction(Cid(CID).digest, bytes(32), INPUTS, 1, "{}")
        await database.write(lambda tx: insert(tx, new, _OWNER, "Benchmark", "1.0.0"))
        ((create,),) = await database.fetch(_TRIGGER)
        for turn in range(_ROUNDS):
            bodies = signed_triggers(range(turn * _WRITES, (turn + 1) * _WRITES))
            found[0].append(await _cpu([lambda body=body: post(app, "/triggers", body) for body in bodies]))
            for change, times in (("DROP TRIGGER triggers_created_event", found[2]), (create, found[1])):
                await database.write(_change(cast("LiteralString", change)))
                works = [_add(next(_NUMBERS)) for _ in range(_WRITES)]
                times.append(await _cpu([lambda work=work: database.write(work) for work in works]))
        await database.close()
    return found


async def _on_postgres() -> tuple[list[float], list[float]]:
    found: tuple[list[float], list[float]] = ([], [])
    with tempfile.TemporaryDirectory() as folder, _postgres.Cluster(fsync=True) as cluster:
        url = await cluster.create_database("events")
        database: Database = open_database(url, data_dir=Path(folder))
        await database.migrate()
        connection = await asyncpg.connect(url)
        for _ in range(_ROUNDS):
            for switch, times in (("ENABLE", found[0]), ("DISABLE", found[1])):
                await connection.execute(f"ALTER TABLE triggers {switch} TRIGGER triggers_created_event")
                works = [_add(next(_NUMBERS)) for _ in range(_WRITES)]
                begun = time.perf_counter()
                await asyncio.gather(*(database.write(work) for work in works))
                times.append((time.perf_counter() - begun) * 1e6 / _WRITES)
        await connection.close()
        await database.close()
    return found


def _add(number: int) -> _Work:
    new = store.NewRow(_sig(number).raw, _OWNER.raw, _digest(number), _digest(0), "Mimic", 0, 1, lambda _: _RECORD)
    return store.insertion(new)


def _change(sql: LiteralString) -> _Work:
    return lambda tx: tx.execute(sql)


async def _cpu(calls: list[Callable[[], Awaitable[object]]]) -> float:
    """CPU microseconds of one of `calls`, of which some are made at once."""
    started = time.process_time_ns()
    for start in range(0, len(calls), _AT_ONCE):
        await asyncio.gather(*(call() for call in calls[start : start + _AT_ONCE]))
    return (time.process_time_ns() - started) / 1_000 / len(calls)


def _digest(number: int) -> bytes:
    return b"\x77" + number.to_bytes(31)


def _sig(number: int) -> Signature:
    return Signature("0x" + number.to_bytes(64).hex() + "1b")


def _print(name: str, micros: list[float]) -> None:
    print(f"{name:44}{statistics.median(micros):8.1f} µs  ({min(micros):.1f} to {max(micros):.1f})")


if __name__ == "__main__":
    main()
