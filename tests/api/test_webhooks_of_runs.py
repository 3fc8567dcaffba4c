"""A webhook tells the owner of a trigger what became of it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import replace

import httpx2
import pytest
from webhooks_world import Maker

from builders import TriggerDraft, Wallet, cron, deploy, register
from conftest import Clock
from muniment.service.context import Context
from muniment.service.resources.webhooks.deliverer import Deliverer
from muniment.service.running.settings import Settings
from operator_client import operator_key
from receiving import Receiver, echo
from run_bodies import body_of, run_of

RELAYER = Wallet(81)


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return replace(settings, allow_private_networks=True)


@pytest.fixture
def clock() -> Clock:
    """The present: receivers refuse what was signed at another time."""
    return Clock(time.time_ns() // 1_000_000)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver().listening() as listening:
        yield listening


@pytest.mark.parametrize("filters", ["signer", "owner", "configSig"])
async def test_runs_of_a_wallet_and_of_no_other_are_delivered(
    client: httpx2.AsyncClient, context: Context, receiver: Receiver, clock: Clock, filters: str
) -> None:
    headers = {"x-operator-key": await operator_key(context, address=RELAYER.address)}
    cid = await deploy(client)
    mine, other = [
        await register(client, TriggerDraft(cid, wallet, config=cron(schedule="* * * * *")))
        for wallet in (Wallet(1), Wallet(2))
    ]
    value = mine["sig"] if filters == "configSig" else mine["signer"]
    operator = Maker(client, headers)
    added = await operator.add(receiver.url, types=["execution.recorded"], filters={filters: [value]})
    receiver.reply = echo
    result = await operator.done("POST", f"/webhooks/{added['webhook']['id']}/test")
    assert result["status"] == "active"
    receiver.reply = lambda _: (204, {}, b"")
    outputs = [{"hash": "0x" + "ab" * 32}]
    for trigger in (other, mine):
        run = run_of(trigger, clock.now_ms + 60_000, result="intents", outputs=outputs)
        answer = await client.post("/executions", json=body_of(run), headers=headers)
        assert answer.status_code == 200, answer.text
    delivering = asyncio.create_task(Deliverer(context).run())
    while len(receiver.received) < 2:
        await asyncio.sleep(0.05)
    delivering.cancel()
    await asyncio.gather(delivering, return_exceptions=True)
    _, delivered = receiver.received
    delivered.verify(added["secret"])
    event = delivered.event
    assert (event["type"], event["subject"]) == ("muniment.execution.recorded", answer.json()["hash"])
    assert event["data"] == {
        "triggerSig": mine["sig"], "triggerType": 0, "result": "intents", "status": "valid",
        "outputs": [outputs[0]["hash"]], "relayer": RELAYER.address,
    }  # fmt: skip
