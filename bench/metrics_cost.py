"""What the metrics of a request cost: CPU microseconds, in turns with the same code without counting. Runs alone.

The first lines are the count and the observation by themselves, ours and those of Prometheus' Python client. The last
lines are whole requests in the server without the kernel, as in `request_cost`.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import uvloop
from prometheus_client import CollectorRegistry, Counter, Histogram

from in_process import unlimited
from muniment.app import Application, build_context
from muniment.http.envelope import Envelope
from muniment.http.reply import Reply
from muniment.http.request import Limits, Request
from muniment.http.routing import Router
from muniment.metrics.families import SECONDS
from muniment.metrics.recorder import Metrics
from muniment.server.run import settle_memory
from request_cost import CONNECTIONS, get_answer, rounds_of
from samples import signed_triggers

_CALLS: Final = 50_000
_ROUNDS: Final = 15
_LABELS: Final = ("GET", "/triggers/{sig}", "200")


class Uncounted(Envelope):
    """An envelope that counts nothing; the rest is the same."""

    async def _answer(self, request: Request) -> Reply:
        return await self._answer_from(self._router.find(request), request)


def main() -> None:
    """Print every figure: the median, the least and the most of the rounds."""
    ours, theirs = _ours(), _theirs()
    alone = [(_micros(ours), _micros(theirs)) for _ in range(_ROUNDS)]
    _print("count and observe", [each for each, _ in alone])
    _print("count and observe, prometheus_client", [each for _, each in alone])
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        counted, uncounted = runner.run(_requests())
    _print("a request", counted)
    _print("a request that is not counted", uncounted)
    _print("the difference", [one - other for one, other in zip(counted, uncounted, strict=True)])
    ratios = [one / other for one, other in zip(counted, uncounted, strict=True)]
    print(f"{'the ratio':40}{statistics.median(ratios):8.3f}")


def _ours() -> Callable[[], object]:
    requests = Metrics.of_process().requests

    def count() -> None:
        begun = time.perf_counter()
        requests.record("GET", "/triggers/{sig}", 200, time.perf_counter() - begun)

    return count


def _theirs() -> Callable[[], object]:
    registry = CollectorRegistry()
    counter = Counter("requests", "Requests.", ("method", "route", "status"), registry=registry)
    times = Histogram("seconds", "Times.", ("method", "route"), buckets=SECONDS, registry=registry)

    def count() -> None:
        begun = time.perf_counter()
        counter.labels(*_LABELS).inc()
        times.labels(*_LABELS[:2]).observe(time.perf_counter() - begun)

    return count


def _micros(count: Callable[[], object]) -> float:
    started = time.process_time_ns()
    for _ in range(_CALLS):
        count()
    return (time.process_time_ns() - started) / 1_000 / _CALLS


async def _requests() -> tuple[list[float], list[float]]:
    """A request by either envelope, in turns: the machine may be busier from one minute to the next."""
    with TemporaryDirectory() as folder:
        settings = replace(unlimited(Path(folder)), log_level="error", rate_limit_client="6000000/60s")
        context = build_context(settings)
        app = Application(context)
        envelopes = [
            kind(
                Router([get_answer]), context, app.admission, limits=Limits(65_536, 30), metrics=context.metrics,
                random_bytes=os.urandom, addresses=context.clients, note_writer=None,
            )
            for kind in (Envelope, Uncounted)
        ]  # fmt: skip
        settle_memory()
        targets = [f"/triggers/{json.loads(body)['sig']}" for body in signed_triggers(range(CONNECTIONS))]
        found: tuple[list[float], list[float]] = ([], [])
        for _ in range(_ROUNDS):
            for envelope, times in zip(envelopes, found, strict=True):
                times.append(min(await rounds_of(envelope, targets, rounds=2)))
        await context.database.close()
    return found


def _print(name: str, micros: list[float]) -> None:
    print(f"{name:40}{statistics.median(micros):8.2f} µs  ({min(micros):.2f} to {max(micros):.2f})")


if __name__ == "__main__":
    main()
