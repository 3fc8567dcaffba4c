"""What is left to publish: a run that cannot be published holds up no other."""

from __future__ import annotations

import asyncio
import tracemalloc
from types import SimpleNamespace
from typing import Any, cast

from muniment.protocol.evm.signature import Signature
from muniment.protocol.runs.payloads import time_payload
from muniment.relayer.figures import Figures
from muniment.relayer.journal.entries import Entry, State
from muniment.relayer.journal.sqlite import Journal
from muniment.relayer.outbox.outbox import Outbox, Publishing
from muniment.relayer.outbox.publication import Published
from muniment.relayer.schedule.due import Due

SIG = Signature.parse("0x" + "11" * 64 + "1b")
# More than are published at once.
COUNT = 20


class _Publishing:
    """Publishes nothing; the first run has a fault that nobody foresaw."""

    async def publish(self, entry: Entry) -> Published:
        if entry.timestamp_ms == 0:
            raise ValueError("unforeseen")
        return Published(None)


class _Slow:
    """Publishes when it may."""

    def __init__(self) -> None:
        self.begun, self.may = asyncio.Event(), asyncio.Event()

    async def publish(self, entry: Entry) -> Published:
        assert not self.begun.is_set(), f"{entry.payload!r} is published twice"
        self.begun.set()
        await self.may.wait()
        return Published(None)


def _keep(journal: Journal, tick_ms: int, body: bytes = b"{}") -> None:
    due = Due(SIG, 0, time_payload(tick_ms), tick_ms, tick_ms)
    journal.plan([due], 0)
    journal.ran(due, "nothing", body, bytes(32), 0)


def _outbox(journal: Journal, publishing: Publishing) -> Outbox:
    return Outbox(
        journal=journal, publishing=publishing, clock=cast("Any", SimpleNamespace(own_ms=lambda: 0)),
        caps=cast("Any", SimpleNamespace()), figures=Figures(),
    )  # fmt: skip


async def test_a_run_that_cannot_be_published_holds_up_no_other() -> None:
    with Journal.in_memory() as journal:
        for tick_ms in range(COUNT):
            _keep(journal, tick_ms)
        outbox = _outbox(journal, _Publishing())
        assert not await outbox.publish_left()
        assert [each.timestamp_ms for each in journal.unfinished(State.RAN)] == [0]
        assert 'failures_total{kind="internal"} 1' in outbox.figures.text()


async def test_a_run_that_is_being_published_is_no_failure() -> None:
    """After a failure the pause before the next try grows up to a minute."""
    publishing = _Slow()
    with Journal.in_memory() as journal:
        _keep(journal, 1)
        outbox = _outbox(journal, publishing)
        first = asyncio.create_task(outbox.publish_left())
        await publishing.begun.wait()
        assert await outbox.publish_left()
        publishing.may.set()
        assert await first
        assert journal.count(State.RAN) == 0


async def test_a_run_that_was_published_meanwhile_is_not_published_again() -> None:
    """What is left may take long: the run of an event may be planned once more by then, and must stay so."""

    class Meanwhile:
        def __init__(self) -> None:
            self.times = list[int]()

        async def publish(self, entry: Entry) -> Published:
            self.times.append(entry.timestamp_ms)
            if entry.timestamp_ms == 0:
                await outbox.publish(last)
                journal.plan_again(last)
            return Published(None)

    publishing = Meanwhile()
    with Journal.in_memory() as journal:
        for tick_ms in range(COUNT):
            _keep(journal, tick_ms)
        outbox, last = _outbox(journal, publishing), [*journal.unfinished(State.RAN)][-1]
        assert await outbox.publish_left()
        assert [each.timestamp_ms for each in journal.unfinished(State.PLANNED)] == [last.timestamp_ms]
    assert publishing.times.count(last.timestamp_ms) == 1


async def test_what_is_left_takes_no_more_memory_the_longer_the_registry_is_away() -> None:
    size = 250_000
    with Journal.in_memory() as journal:
        for tick_ms in range(10 * COUNT):
            _keep(journal, tick_ms, bytes(size))
        outbox = _outbox(journal, _Publishing())
        tracemalloc.start()
        try:
            assert not await outbox.publish_left()
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert peak < 2 * COUNT * size
