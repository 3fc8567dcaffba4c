"""Runs as JSON lines: what an export has is recorded again, elsewhere and later, under the name of imports."""

from __future__ import annotations

import io
import json
from typing import Any

import httpx2
import pytest

from builders import TriggerDraft, Wallet, cron, deploy, once, register
from conftest import NOW_MS, Clock
from muniment.operate.run_lines import Tally, exported_lines, import_lines
from muniment.protocol.errors import Refusal
from muniment.service.context import Context
from operator_client import operator_key
from run_bodies import body_of, once_run_of, run_of

pytestmark = pytest.mark.spoils_events("runs are removed to be imported again")
MINUTE_MS = 60_000
RELAYER = Wallet(81).address


@pytest.fixture
async def made(client: httpx2.AsyncClient, context: Context) -> list[dict[str, Any]]:
    """Runs as GET answers them: two that contradict each other, a note, and one of a trigger that is due once."""
    keys = [await operator_key(context, "a", RELAYER), await operator_key(context, "b")]
    cid = await deploy(client)
    minutely = await register(client, TriggerDraft(cid, config=cron(schedule="* * * * *")))
    single = await register(client, TriggerDraft(cid, Wallet(5), config=once()))
    runs = [
        run_of(minutely, NOW_MS + MINUTE_MS, result="intents", outputs=[{"hash": "0x" + "ab" * 32}]),
        run_of(minutely, NOW_MS + MINUTE_MS), once_run_of(single, logs=[f"[Info] “{n}”" for n in range(60)]),
    ]  # fmt: skip
    for run, key in zip([*runs, runs[0]], [*keys, *keys], strict=True):
        answer = await client.post("/executions", json=body_of(run), headers={"x-operator-key": key})
        assert answer.status_code == 200, answer.text
    hashes = [each["hash"] for each in (await client.get("/executions?sort=1")).json()]
    return [(await client.get(f"/executions/{each}")).json() for each in hashes]


async def imported(context: Context, content: bytes) -> tuple[Tally, list[tuple[int, str]]]:
    refused: list[tuple[int, str]] = []

    def note(number: int, refusal: Refusal) -> None:
        refused.append((number, refusal.code))

    return await import_lines(context.database, io.BytesIO(content), context.clock.now_ms, note), refused


async def emptied(context: Context) -> bytes:
    """The export of all runs, which are removed."""
    content = b"".join([line async for line in exported_lines(context.database)])
    for statement in ("DELETE FROM run_records", "DELETE FROM runs"):
        await context.database.write(lambda tx, statement=statement: tx.execute(statement, ()))
    return content


def without_counts(run: dict[str, Any]) -> dict[str, Any]:
    """A run without what each registry says for itself."""
    return {name: value for name, value in run.items() if name not in {"records", "validations", "status", "createdAt"}}


async def test_an_export_has_what_get_answers(context: Context, made: list[dict[str, Any]]) -> None:
    lines = [json.loads(line) async for line in exported_lines(context.database)]
    assert lines == made
    assert len(made[2]["logs"]) == 60


async def test_an_import_records_the_same_runs_and_counts_one_operator(
    client: httpx2.AsyncClient, context: Context, clock: Clock, made: list[dict[str, Any]]
) -> None:
    content = await emptied(context)
    # The triggers were registered here after the runs, as in a registry to which they were moved.
    await context.database.write(lambda tx: tx.execute("UPDATE triggers SET created_at_ms = ?", (NOW_MS + 86_400_000,)))
    clock.advance(hours=48)
    assert await imported(context, content) == (Tally(stored=3), [])
    for before in made:
        after = (await client.get(f"/executions/{before['hash']}")).json()
        assert without_counts(after) == without_counts(before)
        assert (after["validations"], after["status"]) == (1, "valid")
        assert [each["relayer"] for each in after["records"]] == [before["relayer"]]
    assert await imported(context, b"\n" + content + b"\r\n") == (Tally(unchanged=3, blank=2), [])
    ((names,),) = await context.database.fetch("SELECT count(DISTINCT operator) FROM run_records")
    assert names == 1


async def test_a_run_that_is_orphaned_is_so_after_an_import(
    client: httpx2.AsyncClient, context: Context, made: list[dict[str, Any]]
) -> None:
    await context.database.write(
        lambda tx: tx.execute("UPDATE run_records SET orphaned_at_ms = 1 WHERE run_seq = (SELECT min(seq) FROM runs)")
    )
    content = await emptied(context)
    assert await imported(context, content) == (Tally(stored=3), [])
    found = {each["hash"]: each["status"] for each in (await client.get("/executions")).json()}
    assert found == {each["hash"]: "valid" if n else "invalid" for n, each in enumerate(made)}
    assert await imported(context, content) == (Tally(unchanged=3), [])


async def test_lines_that_are_no_runs_of_this_registry_are_refused(
    context: Context, made: list[dict[str, Any]]
) -> None:
    await emptied(context)
    good = made[1]
    wrong = [
        {**good, "result": "intents"}, {**good, "hash": "0x" + "12" * 32},
        {**good, "triggerSig": "0x" + "34" * 64 + "1b"},
        {**good, "relayer": "0x12"}, {**good, "triggerType": 2}, [good], {**good, "engine": ""},
    ]  # fmt: skip
    content = "\n".join(json.dumps(each) for each in [*wrong, good]).encode() + b"\n{"
    tally, refused = await imported(context, content)
    assert tally == Tally(stored=1, refused=len(wrong) + 1)
    assert refused == [
        (1, "invalid-execution"), (2, "execution-mismatch"), (3, "trigger-not-found"), (4, "invalid-address"),
        (5, "invalid-execution"), (6, "invalid-body"), (7, "invalid-text"), (9, "invalid-json"),
    ]  # fmt: skip
