"""POST /executions and GET /executions/{hash}: what is recorded, by whom, and how it is answered."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import httpx2
import pytest

from builders import Wallet
from conftest import Clock
from muniment.protocol.evm.signature import address_of_key, personal_digest, sign
from muniment.service.context import Context
from muniment.service.resources import operators
from muniment.service.resources.runs.recording import VERDICTS_MAX
from runs_world import (
    BLOCK,
    TICK,
    Relayer,
    event_body,
    hash_of,
    listed,
    once_body,
    read,
    registered,
    registered_event,
    registered_once,
    relayer,
    run_body,
    skipped,
    stopped,
    with_intents,
)

INTENT = "0x" + "11" * 32
OTHER = "0x" + "22" * 32
MINUTE = 60_000


@pytest.fixture
async def trigger(client: httpx2.AsyncClient, clock: Clock) -> dict[str, Any]:
    """A trigger whose first tick is now."""
    made = await registered(client, min_validations=2)
    clock.now_ms = TICK
    return made


@pytest.fixture
async def first(context: Context, client: httpx2.AsyncClient) -> Relayer:
    return await relayer(context, client, "first", 7)


@pytest.fixture
async def second(context: Context, client: httpx2.AsyncClient) -> Relayer:
    return await relayer(context, client, "second", 8)


async def test_a_run_is_recorded_and_answered(
    client: httpx2.AsyncClient, trigger: dict[str, Any], first: Relayer
) -> None:
    inputs = [{"query": "evmCall", "params": {"to": "0x01"}, "answer": {"success": True, "data": "0x"}, "block": BLOCK}]
    logs = [f"[Info] {n}" for n in range(60)]
    body = run_body(trigger, **with_intents(INTENT, OTHER), inputs=inputs, blocks=[BLOCK], logs=logs, logsCut=True)
    recorded = await first.record(body)
    assert recorded["hash"] == hash_of(body)
    assert recorded["logs"] == logs[:50]
    assert "inputs" not in recorded
    assert "context" not in recorded
    whole = await read(client, recorded["hash"])
    assert whole == {
        **recorded, "logs": logs, "inputs": inputs, "context": {"consensusThreshold": 1, "settlers": []},
    }  # fmt: skip
    assert all(whole[name] == body[name] for name in body if name != "outputs")
    assert whole["outputs"] == [{"hash": INTENT, "recorded": False}, {"hash": OTHER, "recorded": False}]
    assert (whole["status"], whole["validations"], whole["conflicts"]) == ("pending", 1, [])
    assert [each["relayer"] for each in whole["records"]] == [first.address] == [whole["relayer"]]
    assert (whole["fee"], whole["solverFees"], whole["createdAt"]) == ("0", [], "2026-11-21T00:00:00.000Z")
    assert (await client.get("/executions")).json() == [recorded]


async def test_what_is_answered_can_be_sent_back(
    client: httpx2.AsyncClient, trigger: dict[str, Any], first: Relayer, second: Relayer
) -> None:
    logs = [f"[Info] {n}" for n in range(51)]
    recorded = await first.record(run_body(trigger, **with_intents(INTENT), logs=logs, fee="12", solverFees=["1"]))
    whole = await read(client, recorded["hash"])
    assert (await second.record(whole))["hash"] == recorded["hash"]
    assert [each["evidence"] for each in (await read(client, recorded["hash"]))["records"]] == [
        whole["records"][0]["evidence"]
    ] * 2


async def test_operators_that_find_the_same_make_a_run_valid(
    context: Context, client: httpx2.AsyncClient, trigger: dict[str, Any], first: Relayer, second: Relayer
) -> None:
    body = run_body(trigger)
    await first.record(body)
    assert (await first.record(body))["validations"] == 1
    # What does not decide the result may differ: it is kept as the first sent it.
    joined = await second.record({**body, "logs": ["[Info] other"], "fuelUsed": "1", "blocks": [BLOCK]})
    assert (joined["status"], joined["validations"], joined["logs"]) == ("valid", 2, body["logs"])
    assert [each["relayer"] for each in joined["records"]] == [first.address, second.address]
    assert joined["records"][0]["evidence"] != joined["records"][1]["evidence"]
    await context.database.write(lambda tx: operators.revoke(tx, "second", TICK))
    after = await read(client, joined["hash"])
    assert (after["status"], after["validations"], len(after["records"])) == ("pending", 1, 2)


async def test_an_operator_without_an_address_is_zeros(
    context: Context, client: httpx2.AsyncClient, trigger: dict[str, Any]
) -> None:
    nobody = await relayer(context, client)
    assert (await nobody.record(run_body(trigger)))["relayer"] == "0x" + "00" * 20
    assert set((await client.get("/executions")).json()[0]["records"][0]) == {"relayer", "evidence", "createdAt"}


async def test_verdicts_that_differ_list_each_other(
    client: httpx2.AsyncClient, trigger: dict[str, Any], first: Relayer, second: Relayer
) -> None:
    nothing, intents, abort = (
        run_body(trigger),
        run_body(trigger, **with_intents(INTENT)),
        run_body(trigger, **stopped()),
    )
    await first.record(nothing)
    await second.record(intents)
    assert (await second.record(abort))["conflicts"] == [hash_of(nothing), hash_of(intents)]
    found = await read(client, hash_of(nothing))
    assert (found["conflicts"], found["status"]) == ([hash_of(intents), hash_of(abort)], "pending")
    # Nothing is stopped by it: the second operator's own verdict does not count against the first's.
    assert (await second.record(nothing))["status"] == "valid"


@pytest.mark.parametrize("order", ["note first", "verdict first"])
@pytest.mark.parametrize("note", [skipped(), stopped("time"), {"result": "incomplete", "reason": {"code": "no-block"}}])
async def test_a_verdict_takes_the_place_of_notes(
    client: httpx2.AsyncClient, trigger: dict[str, Any], first: Relayer, second: Relayer,
    note: dict[str, Any], order: str,
) -> None:  # fmt: skip
    noted, verdict = run_body(trigger, **note), run_body(trigger, **stopped())
    is_note_first = order == "note first"
    for body in (noted, verdict) if is_note_first else (verdict, noted):
        answer = await first.record(body)
        assert answer["hash"] == hash_of(body if is_note_first else verdict)
    assert (await second.record(noted))["hash"] == hash_of(verdict)
    assert await listed(client) == [hash_of(verdict)]
    found = await read(client, hash_of(verdict))
    assert (found["reason"]["code"], found["validations"], found["conflicts"]) == ("abort", 1, [])
    if hash_of(noted) != hash_of(verdict):
        assert (await client.get(f"/executions/{hash_of(noted)}")).json()["code"] == "execution-not-found"


async def test_notes_are_neither_counted_nor_compared(trigger: dict[str, Any], first: Relayer, second: Relayer) -> None:
    await first.record(run_body(trigger, **skipped()))
    await second.record(run_body(trigger, **skipped("other-block")))
    found = await second.record(run_body(trigger, **stopped("memory")))
    assert (found["status"], found["validations"], found["conflicts"]) == ("pending", 0, [])


async def test_that_runs_are_skipped_is_noted_once_an_hour(
    client: httpx2.AsyncClient, clock: Clock, first: Relayer, second: Relayer
) -> None:
    trigger = await registered(client, config={"type": 0, "schedule": "* * * * *", "delta": "10m", "endDate": 0})
    start = (clock.now_ms // MINUTE + 1) * MINUTE

    async def note(by: Relayer, minute: int, code: str = "run-cap") -> str:
        clock.now_ms = start + minute * MINUTE
        return (await by.record(run_body(trigger, clock.now_ms, **skipped(code))))["timestamp"]

    assert [await note(first, n) for n in (0, 1, 59)] == [start] * 3
    for code in ("intent-cap", "not-configured", "too-busy"):
        assert await note(first, 1, code) == start
    assert await note(first, 2, "fee-limit") == start + 2 * MINUTE
    assert await note(second, 3) == start + 3 * MINUTE
    assert await note(first, 60) == start + 60 * MINUTE
    assert len(await listed(client)) == 4


async def test_an_operator_records_few_different_verdicts_on_one_due(
    trigger: dict[str, Any], first: Relayer, second: Relayer, nothing_stored: Callable[[], Any]
) -> None:
    bodies = [run_body(trigger, **with_intents(f"0x{n:064x}")) for n in range(VERDICTS_MAX + 1)]
    for body in bodies[:-1]:
        await first.record(body)
    async with nothing_stored():
        refused = await first.post(bodies[-1])
        assert (refused.status_code, refused.json()["code"]) == (409, "too-many-verdicts")
    await second.record(bodies[-1])  # which does not keep another one from recording the truth
    async with nothing_stored():
        assert (await first.post(bodies[-1])).status_code == 409
    assert (await first.record(bodies[0]))["validations"] == 1


async def test_runs_of_events_and_of_single_times(client: httpx2.AsyncClient, first: Relayer, clock: Clock) -> None:
    once, event = await registered_once(client), await registered_event(client)
    found = await first.record(once_body(once, clock.now_ms))
    assert (found["triggerType"], found["status"]) == (2, "valid")
    assert (await first.post({**event_body(event), "timestamp": clock.now_ms})).status_code == 400
    body = {**event_body(event), "timestamp": clock.now_ms + 1}
    found = await first.record(body)
    assert (found["triggerType"], found["triggerData"]) == (1, body["triggerData"])


async def test_a_deactivated_trigger_has_runs_too(
    client: httpx2.AsyncClient, trigger: dict[str, Any], first: Relayer
) -> None:
    sigs = [trigger["sig"]]
    body = {"triggerSigs": sigs, "signature": Wallet().sign_deactivation(sigs)}
    assert (await client.post("/triggers/deactivate", json=body)).status_code == 204
    await first.record(run_body(trigger))


async def test_a_signature_of_the_relayer_is_kept(
    context: Context, client: httpx2.AsyncClient, trigger: dict[str, Any]
) -> None:
    wallet, body = Wallet(55), run_body(trigger)
    key, address = operators.new_key(bytes), address_of_key(wallet.key)
    await context.database.write(lambda tx: operators.add(tx, "signs", key, TICK, address))
    signature = str(sign(personal_digest(bytes.fromhex(hash_of(body)[2:])), wallet.key))
    assert (await Relayer(client, key).record({**body, "signature": signature}))["signature"] == signature


async def test_the_etag_changes_with_every_change(
    client: httpx2.AsyncClient, trigger: dict[str, Any], first: Relayer, second: Relayer
) -> None:
    body = run_body(trigger)
    await first.record(body)
    path = f"/executions/{hash_of(body)}"
    etag = (await client.get(path)).headers["etag"]
    unchanged = await client.get(path, headers={"if-none-match": etag})
    assert (unchanged.status_code, unchanged.content) == (304, b"")
    await second.record(body)
    changed = await client.get(path, headers={"if-none-match": etag})
    assert (changed.status_code, changed.headers["etag"] != etag) == (200, True)


async def test_writers_at_once_make_one_run(
    context: Context, client: httpx2.AsyncClient, trigger: dict[str, Any]
) -> None:
    relayers = [await relayer(context, client, f"r{n}", n + 1) for n in range(8)]
    bodies = [run_body(trigger), run_body(trigger, **skipped()), run_body(trigger, **stopped("time"))]
    await asyncio.gather(*(each.record(bodies[n % 3]) for n, each in enumerate(relayers)))
    await asyncio.gather(*(each.record(bodies[0]) for each in relayers))
    assert await listed(client) == [hash_of(bodies[0])]
    found = await read(client, hash_of(bodies[0]))
    assert sorted(each["relayer"] for each in found["records"]) == sorted(each.address for each in relayers)
    assert (found["validations"], found["status"]) == (8, "valid")
