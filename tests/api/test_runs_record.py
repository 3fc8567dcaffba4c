"""POST /executions and GET /executions/{hash}: what is recorded, and how it is answered."""

from __future__ import annotations

import httpx2
from runs_world import (
    BLOCK,
    TICK,
    hash_of,
    read,
    registered,
    relayer,
    run_body,
    with_intents,
)

from conftest import Clock
from muniment.service.context import Context

INTENT = "0x" + "11" * 32
OTHER = "0x" + "22" * 32


async def test_a_run_is_recorded_and_answered(client: httpx2.AsyncClient, context: Context, clock: Clock) -> None:
    trigger = await registered(client)
    clock.now_ms = TICK
    own = await relayer(context, client, number=7)
    inputs = [{"query": "evmCall", "params": {"to": "0x01"}, "answer": {"success": True, "data": "0x"}, "block": BLOCK}]
    logs = [f"[Info] {n}" for n in range(60)]
    body = run_body(trigger, **with_intents(INTENT, OTHER), inputs=inputs, blocks=[BLOCK], logs=logs, logsCut=True)
    recorded = await own.record(body)
    assert recorded["hash"] == hash_of(body)
    assert recorded["logs"] == logs[:50]
    assert "inputs" not in recorded
    assert "context" not in recorded
    whole = await read(client, recorded["hash"])
    assert whole == {
        **recorded, "logs": logs, "inputs": inputs, "context": {"consensusThreshold": 1, "settlers": []},
    }  # fmt: skip
    assert whole["outputs"] == [{"hash": INTENT, "recorded": False}, {"hash": OTHER, "recorded": False}]
    assert (whole["status"], whole["validations"], whole["conflicts"]) == ("valid", 1, [])
    assert [each["relayer"] for each in whole["records"]] == [own.address] == [whole["relayer"]]
    assert (whole["fee"], whole["solverFees"], whole["createdAt"]) == ("0", [], "2026-11-21T00:00:00.000Z")
    assert (await client.get("/executions")).json() == [recorded]
