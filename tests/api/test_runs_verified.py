"""What `muniment verify` finds in the rows of runs, and what it only reports."""

from __future__ import annotations

from typing import Any, LiteralString

import httpx2
import pytest
from tlog_world import insert_rows

from builders import TriggerDraft, cron, deploy, register
from conftest import NOW_MS
from muniment.operate.verify_runs import check_runs, contradictions
from muniment.service.context import Context
from muniment.service.storage.database import Transaction
from operator_client import IntentDraft, operator_key
from run_bodies import body_of, hash_of, run_of

pytestmark = pytest.mark.spoils_events("rows are changed as no release does")
MINUTE_MS = 60_000


@pytest.fixture
async def trigger(client: httpx2.AsyncClient) -> dict[str, Any]:
    return await register(client, TriggerDraft(await deploy(client), config=cron(schedule="* * * * *")))


async def recorded(client: httpx2.AsyncClient, key: str, trigger: dict[str, Any], **members: Any) -> str:
    """The hash of a run of the trigger that was recorded at its first tick."""
    run = run_of(trigger, NOW_MS + MINUTE_MS, **members)
    answer = await client.post("/executions", json=body_of(run), headers={"x-operator-key": key})
    assert answer.status_code == 200, answer.text
    return str(hash_of(run))


async def faults(context: Context) -> list[str | None]:
    return [each async for each in check_runs(context)]


async def test_runs_as_they_were_recorded_are_well(
    client: httpx2.AsyncClient, context: Context, trigger: dict[str, Any]
) -> None:
    key = await operator_key(context, address="0x" + "11" * 20)
    await recorded(client, key, trigger, result="intents", outputs=[{"hash": "0x" + "ab" * 32}])
    await recorded(client, key, trigger, result="stopped", reason={"code": "abort", "text": ""})
    assert await faults(context) == [None, None]


TABLES: tuple[LiteralString, ...] = ("runs", "run_records")
CHANGED: dict[str, tuple[LiteralString, str]] = {
    "result": ("UPDATE runs SET record = replace(record, '\"nothing\"', '\"intents\"')", "does not match its hash"),
    "tick": ("UPDATE runs SET record = replace(record, '\"timestamp\":1', '\"timestamp\":2')", "another timestamp"),
    "answer": ("UPDATE runs SET detail = replace(detail, '\"1000000000000000000\"', '\"2\"')", "shows other inputs"),
    "block": ("UPDATE runs SET record = replace(record, '38000000', '38000001')", "shows other inputs"),
    "evidence": ("UPDATE run_records SET evidence = (SELECT hash FROM runs)", "shows other inputs"),
    "relayer": ("UPDATE run_records SET relayer = substr(evidence, 1, 20)", "shows other inputs"),
    "validations": ("UPDATE runs SET min_validations = 2", "columns differ"),
    "verdict": ("UPDATE runs SET verdict = 0", "columns differ"),
    "cause": ("UPDATE runs SET payload_hash = hash", "columns differ"),
    "result in its column": ("UPDATE runs SET result = 'missed'", "columns differ"),
    "length": ("UPDATE runs SET record_bytes = record_bytes + 1", "columns differ"),
    "time": ("UPDATE runs SET created_at_ms = created_at_ms - 1", "columns differ"),
    "unreadable": ("UPDATE runs SET record = replace(record, '\"nothing\"', '\"something\"')", "cannot be read"),
}


async def test_a_changed_run_is_named(
    client: httpx2.AsyncClient, context: Context, trigger: dict[str, Any], subtests: pytest.Subtests
) -> None:
    made = await recorded(client, await operator_key(context), trigger)
    kept = {table: await context.database.fetch(f"SELECT * FROM {table}") for table in TABLES}

    async def put_back(tx: Transaction) -> None:
        for table in ("events", *TABLES[::-1]):  # a run that is inserted has its event
            await tx.execute(f"DELETE FROM {table}")
        for table in TABLES:
            await insert_rows(tx, table, kept[table])

    for name, (statement, why) in CHANGED.items():
        await context.database.write(put_back)
        assert await faults(context) == [None]
        with subtests.test(name):
            assert await context.database.write(lambda tx, sql=statement: tx.execute(sql)) == 1
            (fault,) = await faults(context)
            assert fault is not None
            assert fault.startswith(f"run {made}: ")
            assert why in fault


async def test_contradictions_are_reported_and_are_no_faults(
    client: httpx2.AsyncClient, context: Context, trigger: dict[str, Any]
) -> None:
    key, other = await operator_key(context), await operator_key(context, "other")
    first = await recorded(client, key, trigger)
    second = await recorded(client, other, trigger, result="stopped", reason={"code": "abort", "text": ""})
    made = IntentDraft(2).saying(configSig=trigger["sig"])
    third = await recorded(client, other, trigger, result="intents", outputs=[{"hash": made.hash}])
    made = made.saying(executionHash=third)
    answer = await client.put(f"/intents/{made.hash}", json=made.body, headers={"x-operator-key": key})
    assert answer.status_code == 200, answer.text
    assert await faults(context) == [None, None, None]
    await context.database.write(lambda tx: tx.execute("UPDATE runs SET disputed = 0 WHERE result = 'nothing'", ()))
    assert await faults(context) == [f"run {first}: it does not show the other verdicts on its cause", None, None]
    pairs = [(first, second), (first, third), (second, third)]
    assert [each async for each in contradictions(context.database)] == [
        f"two verdicts on one cause: the runs {a} and {b}" for a, b in pairs
    ]


async def test_an_intent_that_names_a_run_without_it_is_reported(
    client: httpx2.AsyncClient, context: Context, trigger: dict[str, Any]
) -> None:
    key = await operator_key(context)
    named = hash_of(run_of(trigger, NOW_MS + MINUTE_MS))
    draft = IntentDraft().saying(executionHash=str(named))  # before its run, so nothing contradicts it
    answer = await client.put(f"/intents/{draft.hash}", json=draft.body, headers={"x-operator-key": key})
    assert answer.status_code == 200, answer.text
    await recorded(client, key, trigger)
    assert await faults(context) == [None]
    lines = [each async for each in contradictions(context.database)]
    assert lines == [f"intent {draft.hash} names the run {named}, which lacks it"]
