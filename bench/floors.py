"""The floor of each hot path: what kernel, SQLite and curve take of it. Runs alone: `floors.py`.

A request can cost no less than a bare server's answer of the same length under the same load, its statements alone,
and, for a new trigger, the recovery of its signer. The rest is Python's: parsing, limits, checks, encoding. A registry
of a few thousand triggers without a log answers over HTTP; all parts take turns, and only CPU time counts.
"""

from __future__ import annotations

import json
import sqlite3
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import httpx2
import msgspec

from muniment.protocol.triggers.types import NewTrigger
from muniment.protocol.wire import decode_text
from samples import SIGNERS, signed_triggers
from server import CONNECTIONS, HERE, Server, deploy, get, muniment, post, register
from verification import bare_recovery

_REGISTERED, _ONES, _LISTS, _CREATES = 4_000, 12_000, 8_000, 3_000
_ROUNDS = 5
_PATHS = ("one trigger", "ten triggers", "new trigger")
_WHOLE, _KERNEL, _SQLITE, _CURVE = "Muniment", "kernel and event loop", "SQLite", "curve"
_ONE = "SELECT record, deactivated FROM triggers WHERE sig = ?"
_PART = "SELECT seq, record FROM triggers WHERE signer = ? AND live = "
_TEN = f"{_PART}0 UNION ALL {_PART}1 ORDER BY 1 DESC LIMIT 11"

# Path, and part of it, to the microseconds of each round.
Micros = dict[tuple[str, str], list[float]]


def measure() -> Micros:
    """CPU microseconds of a request, and of its parts."""
    found: Micros = defaultdict(list)
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        data = Path(folder) / "data"
        service = stack.enter_context(muniment(data, has_log=False))
        with httpx2.Client(base_url=service.url) as client:
            cid = deploy(client)
            seeded = signed_triggers(range(_REGISTERED), cid)
            register(service, seeded)
            sigs = [json.loads(body)["sig"] for body in seeded]
            targets = (f"/triggers/{sigs[0]}", f"/triggers?signer={SIGNERS[0]}&limit=10")
            sizes = [len(client.get(target).content) for target in targets]
        ones = [get(f"/triggers/{sig}") for sig in sigs] * (_ONES // _REGISTERED)
        lists = [get(f"/triggers?signer={signer}&limit=10") for signer in SIGNERS] * (_LISTS // len(SIGNERS))
        bare = [stack.enter_context(_bare_server(size)) for size in sizes]
        for number in range(_ROUNDS + 1):
            new = signed_triggers(range(begun := _REGISTERED + number * _CREATES, begun + _CREATES), cid)
            creates = [post("/triggers", body) for body in new]
            sent = dict(zip(_PATHS, (ones, lists, creates), strict=True))
            micros = {(path, _WHOLE): 1e6 / service.load(sent[path]).per_cpu_second for path in _PATHS}
            for path, server in zip(_PATHS, (*bare, bare[0]), strict=True):
                micros[path, _KERNEL] = 1e6 / server.load(sent[path]).per_cpu_second
            micros |= _in_sqlite(data, [bytes.fromhex(sig[2:]) for sig in sigs], Path(folder) / f"{number}.db")
            recover, inputs = bare_recovery(
                [msgspec.json.decode(b, type=NewTrigger, dec_hook=decode_text) for b in new]
            )
            micros["new trigger", _CURVE] = _micros_each(recover, inputs)
            if number:  # the first round warms up
                for name, value in micros.items():
                    found[name].append(value)
    return found


def _bare_server(size: int) -> Server:
    return Server([sys.executable, str(HERE / "bare_server.py"), str(size)])


def _in_sqlite(data: Path, sigs: Sequence[bytes], other: Path) -> dict[tuple[str, str], float]:
    """The statements alone: those that read in one view, those that write in groups as large as the load's."""
    with closing(sqlite3.connect(data / "muniment.db", isolation_level=None)) as connection:
        connection.execute("BEGIN")
        signers = [bytes.fromhex(signer[2:]) for signer in SIGNERS] * (_LISTS // len(SIGNERS))
        one = _micros_each(lambda sig: connection.execute(_ONE, (sig,)).fetchone(), sigs)
        ten = _micros_each(lambda signer: connection.execute(_TEN, (signer, signer)).fetchall(), signers)
        return {
            ("one trigger", _SQLITE): one,
            ("ten triggers", _SQLITE): ten,
            ("new trigger", _SQLITE): _inserting(connection, other),
        }


def _inserting(stored: sqlite3.Connection, path: Path) -> float:
    """Microseconds of one of the newest triggers with its event, in groups that are on disk when they end."""
    schema = [sql for (sql,) in stored.execute(
        "SELECT sql FROM sqlite_master WHERE tbl_name IN ('triggers', 'events') AND sql IS NOT NULL"
    )]  # fmt: skip
    triggers, events = (
        stored.execute(f"SELECT * FROM {table} WHERE seq > (SELECT max(seq) - {_CREATES} FROM {table})").fetchall()
        for table in ("triggers", "events")
    )
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")
        for sql in sorted(schema, key=lambda sql: not sql.startswith("CREATE TABLE")):
            connection.execute(sql)
        insert_trigger, insert_event = (
            f"INSERT INTO {table} VALUES ({', '.join('?' * len(rows[0]))})"
            for table, rows in (("triggers", triggers), ("events", events))
        )

        def insert(at: int) -> None:
            connection.execute("BEGIN IMMEDIATE")
            for trigger, event in zip(triggers[at : at + CONNECTIONS], events[at : at + CONNECTIONS], strict=True):
                connection.execute(insert_trigger, trigger)
                connection.execute(insert_event, event)
            connection.execute("COMMIT")

        return _micros_each(insert, range(0, len(triggers), CONNECTIONS)) / CONNECTIONS


def _micros_each(work: Callable[[Any], object], items: Sequence[Any]) -> float:
    started = time.process_time_ns()
    for item in items:
        work(item)
    return (time.process_time_ns() - started) / 1_000 / len(items)


def show(found: Micros) -> None:
    """Print the medians, and how many times its floor each path takes."""
    for path in _PATHS:
        parts = {part: statistics.median(found[path, part]) for each, part in found if each == path}
        whole = parts.pop(_WHOLE)
        print(f"{path:14}{whole:7.0f} µs; floor {sum(parts.values()):.0f}: "
              f"{', '.join(f'{part} {micros:.0f}' for part, micros in parts.items())}; "
              f"{whole / sum(parts.values()):.2f} times the floor")  # fmt: skip


if __name__ == "__main__":
    show(measure())
