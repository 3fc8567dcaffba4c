"""Runs of a filled registry: every result, a conflict, a hostile function, and a run with an intent that is here."""

from __future__ import annotations

from typing import Any

import httpx2

from builders import Wallet
from intent_bodies import intent_body
from muniment.protocol.forms import decode_record
from muniment.protocol.intents.hashes import intent_hash
from muniment.protocol.intents.types import AnyNewIntent
from muniment.service.context import Context
from operation_data import transfer_data
from operator_client import operator_key
from run_bodies import body_of, hash_of, run_of

HOUR_MS = 3_600_000
RELAYERS = (Wallet(81), Wallet(82))


async def fill_runs(
    context: Context, client: httpx2.AsyncClient, triggers: list[dict[str, Any]], now_ms: int, hostile: str
) -> dict[str, str]:
    """Record runs of the first trigger, which is due every six hours, and of the last; hashes by what they show."""
    keys = [
        await operator_key(context, f"relayer-of-runs-{n}", each.address if n else None)
        for n, each in enumerate(RELAYERS)
    ]
    first, last = triggers[0], triggers[-1]
    made = intent_body(9_001, op=1, user=first["signer"], configSig=first["sig"], data=transfer_data(), deadline=str(
        now_ms // 1000 + 3_600
    ))  # fmt: skip
    own: AnyNewIntent = decode_record(made, AnyNewIntent)
    outputs = [{"hash": "0x" + intent_hash(own).hex()}, {"hash": "0x" + "99" * 32}]
    runs = {
        "missed": run_of(
            first, now_ms - 13 * HOUR_MS, result="missed", reason={"code": "gap", "text": ""}, missedCount=1,
            inputs=[], blocks=[], logs=[],
        ),
        "nothing": run_of(first, now_ms - 7 * HOUR_MS),
        "in conflict": run_of(
            first, now_ms - 7 * HOUR_MS, result="stopped", reason={"code": "abort", "text": "price is above the limit"}
        ),
        "intents": run_of(first, now_ms, result="intents", outputs=outputs),
        "hostile": run_of(
            last, now_ms, result="stopped", reason={"code": "abort", "text": hostile}, logs=[f"[Info] {hostile}"] * 3,
            inputs=[
                {"query": "api", "params": {"url": hostile}, "answer": {"success": False, "error": hostile}},
                {"query": "evmCall", "params": {}, "answer": {"success": True, "data": hostile * 5}},
            ],
        ),
    }  # fmt: skip
    for name, run in runs.items():
        body = body_of(run)
        if name == "missed":
            body |= {"from": run.timestamp, "to": run.timestamp}
        # The runs in conflict are of two operators.
        headers = {"x-operator-key": keys[name == "in conflict"]}
        answer = await client.post("/executions", json=body, headers=headers)
        assert answer.status_code == 200, answer.text
    both = await client.post("/executions", json=body_of(runs["intents"]), headers={"x-operator-key": keys[1]})
    assert both.status_code == 200, both.text
    named = {**made, "executionHash": hash_of(runs["intents"])}
    put = await client.put(f"/intents/{outputs[0]['hash']}", json=named, headers={"x-operator-key": keys[0]})
    assert put.status_code == 200, put.text
    return {**{name: str(hash_of(run)) for name, run in runs.items()}, "its intent": outputs[0]["hash"]}
