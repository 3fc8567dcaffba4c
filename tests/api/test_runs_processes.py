"""Two processes that record runs for one cause at the same moment, on PostgreSQL: SQLite has one writer at a time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import httpx2
import pytest

from conftest import Clock
from muniment.protocol.evm.signature import Signature
from muniment.protocol.forms import decode_record
from muniment.protocol.runs.rules import check_run
from muniment.protocol.runs.types import NewRun
from muniment.service.context import Context
from muniment.service.resources.operators import OperatorCaller
from muniment.service.resources.runs import recording
from muniment.service.resources.triggers.terms import find_terms
from muniment.service.storage import open_database
from muniment.service.storage.database import Database, Transaction
from runs_world import TICK, hash_of, listed, read, registered, relayer, run_body, skipped

pytestmark = pytest.mark.parametrize("database_url", ["postgres"], indirect=True)


@pytest.fixture
async def other(context: Context) -> AsyncIterator[Database]:
    """The database as another process has it."""
    async with AsyncExitStack() as stack:
        opened = open_database(context.settings.database_url, data_dir=context.settings.data_dir)
        stack.push_async_callback(opened.close)
        yield opened


@pytest.fixture
async def trigger(client: httpx2.AsyncClient, context: Context, clock: Clock) -> dict[str, Any]:
    made = await registered(client, min_validations=2)
    clock.now_ms = TICK
    for name in ("first", "second"):
        await relayer(context, client, name)
    return made


async def record(tx: Transaction, context: Context, body: dict[str, Any], name: str) -> None:
    found = await find_terms(context.database, Signature.parse(body["triggerSig"]))
    assert found is not None
    seq, terms = found
    checked = check_run(decode_record(body, NewRun), terms, None, TICK)
    sent = recording.Sent(checked, seq, terms.min_validations, OperatorCaller(name), TICK, lambda: None)
    await recording.record(tx, sent)


async def together(context: Context, other: Database, first: dict[str, Any], second: dict[str, Any]) -> None:
    """Record the first run, and before its commit begin with the second in the other process."""
    tasks: list[asyncio.Task[None]] = []

    async def hold(tx: Transaction) -> None:
        await record(tx, context, first, "first")
        tasks.append(asyncio.create_task(other.write(lambda tx: record(tx, context, second, "second"))))
        # Until the second waits for a lock of the first, or did not have to wait for it.
        while not tasks[0].done():
            ((waiting,),) = await other.fetch("SELECT count(*) FROM pg_locks WHERE NOT granted")
            if waiting:
                break
            await asyncio.sleep(0.01)

    await context.database.write(hold)
    await asyncio.gather(*tasks)


async def test_a_note_of_one_process_does_not_stand_beside_the_verdict_of_another(
    client: httpx2.AsyncClient, context: Context, other: Database, trigger: dict[str, Any]
) -> None:
    verdict, note = run_body(trigger), run_body(trigger, **skipped())
    await together(context, other, verdict, note)
    assert await listed(client) == [hash_of(verdict)]


async def test_a_verdict_of_one_process_removes_the_note_of_another(
    client: httpx2.AsyncClient, context: Context, other: Database, trigger: dict[str, Any]
) -> None:
    verdict, note = run_body(trigger), run_body(trigger, **skipped())
    await together(context, other, note, verdict)
    assert await listed(client) == [hash_of(verdict)]


async def test_the_same_run_in_two_processes_is_one_with_two_records(
    client: httpx2.AsyncClient, context: Context, other: Database, trigger: dict[str, Any]
) -> None:
    body = run_body(trigger)
    await together(context, other, body, body)
    found = await read(client, hash_of(body))
    assert (found["validations"], found["status"], len(found["records"])) == (2, "valid", 2)
