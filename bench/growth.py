"""What a page, a create and a deactivation cost as the table grows: in process on SQLite, taking turns."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import closing
from pathlib import Path

from in_process import get, post, unlimited
from muniment.service.app import Application, build_context
from muniment.service.storage.sqlite.connection import connect
from samples import SIGNERS, consent, signed_triggers
from server import CONNECTIONS
from traffic import Scale

PAGE, CREATE, DEACTIVATION = "a page of ten", "a create", "a deactivation"
# Sizes of the table; what `SOME` is depends on the scale.
SIZES = FEW, SOME, ALL = "a thousand", "some", "all"
# Operation to size to CPU microseconds of each round.
Micros = dict[str, dict[str, list[float]]]
_CALLS = 16 * CONNECTIONS
# Above those of every trigger that is registered elsewhere, and a multiple of the number of signers.
_FIRST_NUMBER = 10**9


def measure(scale: Scale, folders: Mapping[str, Path], cid: str) -> Micros:
    """CPU microseconds of one operation of a round, by operation and size; the writer's thread is included."""
    return asyncio.run(_compare(scale, folders, cid))


async def _compare(scale: Scale, folders: Mapping[str, Path], cid: str) -> Micros:
    contexts = {size: build_context(unlimited(each)) for size, each in folders.items()}
    apps = {size: Application(context) for size, context in contexts.items()}
    micros: Micros = {name: {size: [] for size in folders} for name in (PAGE, CREATE, DEACTIVATION)}
    for number in range(scale.rounds + 1):
        bodies = _of_one_signer(number, cid)
        consents = [consent(body) for body in bodies]
        for size, app in apps.items():
            file = folders[size] / "muniment.db"
            taken = {
                PAGE: await _micros([_reads(app)] * _CALLS, file),
                CREATE: await _micros(_posts(app, "/triggers", bodies, 200), file),
                DEACTIVATION: await _micros(_posts(app, "/triggers/deactivate", consents, 204), file),
            }
            for name, each in taken.items():
                if number:  # the first round warms up
                    micros[name][size].append(each)
    for context in contexts.values():
        await context.database.close()
    return micros


def _of_one_signer(number: int, cid: str) -> list[bytes]:
    """New triggers of the signer whose key is at hand."""
    first = _FIRST_NUMBER + number * _CALLS * len(SIGNERS)
    return signed_triggers(range(first, first + _CALLS * len(SIGNERS), len(SIGNERS)), cid)


def _reads(app: Application) -> Callable[[], Awaitable[object]]:
    return lambda: get(app, "/triggers")


def _posts(
    app: Application, target: str, bodies: Iterable[bytes], status: int
) -> list[Callable[[], Awaitable[object]]]:
    return [lambda body=body: post(app, target, body, status) for body in bodies]


async def _micros(calls: list[Callable[[], Awaitable[object]]], file: Path) -> float:
    """CPU microseconds of each call, as many at a time as there are connections elsewhere.

    What they logged is checkpointed at the end, and counted: the log is larger than a round, so that else one round in
    a few would pay for all.
    """
    with closing(connect(file)) as connection:
        started = time.process_time_ns()
        for at in range(0, len(calls), CONNECTIONS):
            await asyncio.gather(*(call() for call in calls[at : at + CONNECTIONS]))
        connection.execute("PRAGMA wal_checkpoint(PASSIVE)")
    return (time.process_time_ns() - started) / 1_000 / len(calls)
