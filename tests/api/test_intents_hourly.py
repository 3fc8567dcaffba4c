"""Intents of the last day by hour and status: what is counted, and how seldom."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import LiteralString, cast

from intents_world import intent_body, operations_body, record, record_at

from applications import another_process
from conftest import NOW_MS, Clock
from muniment.protocol.intents.lifecycle import Moment
from muniment.service.context import Context
from muniment.service.resources.intents.history import HOUR_MS, HOURS, Hour, count_by_hour
from muniment.service.running.kept import KeptCount
from muniment.service.storage.database import Database, DatabaseLimits, Row

GRACE_S = 3_600
BEGIN_MS = NOW_MS - NOW_MS % HOUR_MS
OLDEST_MS = BEGIN_MS - (HOURS - 1) * HOUR_MS


def moment_of(context: Context) -> Moment:
    return Moment(context.clock.now_ms(), GRACE_S)


class Counts:
    """The kept counts of a process."""

    def __init__(self, context: Context, database: object = None) -> None:
        self._context = context
        self._database = cast("Database", database or context.database)
        self._kept = KeptCount[list[Hour]](context.clock)

    async def read(self) -> list[Hour] | None:
        return await self._kept.read(lambda: count_by_hour(self._database, moment_of(self._context)))


async def total(counts: Counts) -> int:
    hours = await counts.read()
    assert hours is not None
    return sum((each.counts for each in hours), Counter[str]()).total()


async def test_a_day_has_24_hours_also_without_intents(context: Context) -> None:
    hours = await count_by_hour(context.database, moment_of(context))
    assert [each.begin_ms for each in hours] == [OLDEST_MS + n * HOUR_MS for n in range(HOURS)]
    assert not any(each.counts or each.reasons for each in hours)


async def test_intents_of_both_forms_are_counted_in_the_hour_of_their_arrival(context: Context) -> None:
    soon = str(NOW_MS // 1_000)  # passed by now
    await record_at(
        context,
        (OLDEST_MS - 1, intent_body(1)),
        (OLDEST_MS, intent_body(2, status="succeeded")),
        (OLDEST_MS + HOUR_MS - 1, operations_body(3, status="failed")),
        (OLDEST_MS + HOUR_MS, operations_body(4)),
        (BEGIN_MS - 1, intent_body(5, status="enqueued", deadline=soon)),
        (BEGIN_MS, intent_body(6, status="submitted", deadline=soon)),
        (NOW_MS, intent_body(7)),
        (NOW_MS, operations_body(8)),
    )
    hours = [each for each in await count_by_hour(context.database, moment_of(context)) if each.counts]
    assert {each.begin_ms: each.reasons for each in hours if each.reasons} == {
        OLDEST_MS: {("failed", "its transaction failed on the chain"): 1},
        BEGIN_MS - HOUR_MS: {("expired", "no solver made an offer"): 1},
    }
    assert {each.begin_ms: each.counts for each in hours} == {
        OLDEST_MS: {"succeeded": 1, "failed": 1},
        OLDEST_MS + HOUR_MS: {"created": 1},
        BEGIN_MS - HOUR_MS: {"expired": 1},
        BEGIN_MS: {"submitted": 1, "created": 2},
    }


async def test_an_intent_that_is_dated_ahead_is_in_no_hour_yet(context: Context) -> None:
    await record_at(context, (BEGIN_MS + HOUR_MS, intent_body(1)))
    assert await total(Counts(context)) == 0


async def test_a_count_serves_all_for_half_a_minute(context: Context, clock: Clock) -> None:
    counts = Counts(context)
    assert await total(counts) == 0
    await record(context, intent_body(1))
    clock.advance(seconds=29.9)
    assert await total(counts) == 0
    clock.advance(seconds=0.1)
    assert await total(counts) == 1


class Counted:
    """A database that counts its long reads."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.asked = 0

    async def fetch_slow(self, sql: LiteralString, parameters: Sequence[object] = (), *, client: str = "") -> list[Row]:
        self.asked += 1
        return await self._database.fetch_slow(sql, parameters, client=client)


async def test_who_asks_together_waits_for_one_count(context: Context) -> None:
    counted = Counted(context.database)
    counts = Counts(context, counted)
    answers = await asyncio.gather(*(counts.read() for _ in range(20)))
    assert all(each is answers[0] for each in answers)
    assert counted.asked == 1


async def test_who_leaves_while_it_counts_keeps_no_other_from_the_answer(context: Context) -> None:
    counts = Counts(context)
    asking = [asyncio.create_task(counts.read()) for _ in range(2)]
    await asyncio.sleep(0)
    asking[0].cancel()
    hours = await asking[1]
    assert hours is not None
    assert len(hours) == HOURS


async def test_a_count_that_takes_too_long_is_not_known_for_half_a_minute(context: Context, clock: Clock) -> None:
    async with another_process(context, DatabaseLimits(slow_read_seconds_max=0)) as hasty:
        counted = Counted(hasty.database)
        counts = Counts(hasty, counted)
        assert [await counts.read() for _ in range(3)] == [None] * 3
        assert counted.asked == 1
        clock.advance(seconds=30)
        assert await counts.read() is None
        assert counted.asked == 2
