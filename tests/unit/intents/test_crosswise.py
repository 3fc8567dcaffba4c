"""Writers of the same intents on PostgreSQL do not wait for each other crosswise, whatever order they come in."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import msgspec
import pytest

from muniment.protocol.intents import rules
from muniment.protocol.intents.lifecycle import Moment
from muniment.protocol.intents.types import NewIntent, NewLog
from muniment.protocol.wire import decode_text
from muniment.service.resources.intents import recording
from muniment.service.storage import open_database
from muniment.service.storage.database import Database
from operator_client import IntentDraft, log

NOW_MS = 1_795_204_080_123
GRACE_S = 3_600
INTENTS = 30


@pytest.fixture
async def machines(postgres_url: str) -> AsyncIterator[list[Database]]:
    """Three processes' databases, as far as the server can tell."""
    async with AsyncExitStack() as stack:
        opened = [open_database(postgres_url, data_dir=Path()) for _ in range(3)]
        for each in opened:
            stack.push_async_callback(each.close)
        yield opened


async def deadlocks(database: Database) -> int:
    """So many the server has had to break in this database; a backend tells of its own within a second."""
    await asyncio.sleep(1.1)
    row = await database.fetch_one("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")
    assert row is not None
    return row[0]


@pytest.mark.long
async def test_logs_of_many_intents_from_many_processes_meet_no_deadlock(machines: list[Database]) -> None:
    hashes, now = list[bytes](), Moment(NOW_MS, GRACE_S)
    for number in range(INTENTS):
        new = msgspec.convert(IntentDraft(number).body, NewIntent, dec_hook=decode_text)
        checked = rules.check_intent(new, None, protocol="Mimic", chains={}, now_ms=NOW_MS)
        await machines[0].write(lambda tx, checked=checked: recording.record(tx, checked, "test", now))
        hashes.append(checked.hash)
    before = await deadlocks(machines[0])
    chance = random.Random(7)

    async def append(number: int) -> None:
        to = chance.choice(hashes)
        line = rules.check_log(msgspec.convert(log(number), NewLog, dec_hook=decode_text), NOW_MS)
        database = machines[number % len(machines)]
        await database.write(lambda tx: recording.append_log(tx, to, line, "test", NOW_MS), order=to)

    await asyncio.gather(*(append(number) for number in range(600)))
    assert await machines[0].fetch("SELECT count(*) FROM intent_logs") == [(600,)]
    assert await deadlocks(machines[0]) == before
