"""When too many writes wait, creates are refused and deactivations are accepted all the same."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import httpx2

from applications import another_process, client_of
from builders import TriggerDraft, Wallet, deploy, register
from muniment.service.app import Application
from muniment.service.context import Context
from muniment.service.running.limits import overload as turns
from muniment.service.storage.database import DatabaseLimits

OWNER = Wallet(43)


async def test_creates_are_refused_and_deactivations_are_not(
    client: httpx2.AsyncClient, context: Context, nothing_stored: Callable[[], Any]
) -> None:
    cid = await deploy(client)
    sig = (await register(client, TriggerDraft(cid, OWNER)))["sig"]
    refused = TriggerDraft(cid, OWNER, version="2.0.0")
    limits = DatabaseLimits(writes_waiting_max=0)
    async with another_process(context, limits) as full, client_of(Application(full)) as client_of_full:
        async with nothing_stored():
            response = await client_of_full.post("/triggers", json=refused.signed())
        assert (response.status_code, response.json()["code"]) == (503, "overloaded")
        assert response.headers["retry-after"] == "1"
        body = {"triggerSigs": [sig], "signature": OWNER.sign_deactivation([sig])}
        assert (await client_of_full.post("/triggers/deactivate", json=body)).status_code == 204
        await full.database.until_seen()
    assert "deactivateSig" in (await client.get(f"/triggers/{sig}")).json()
    await register(client, refused)


async def test_creates_beyond_the_bound_of_the_queue_are_refused_and_not_stored(
    client: httpx2.AsyncClient, context: Context
) -> None:
    cid = await deploy(client)
    ended = (await register(client, TriggerDraft(cid, OWNER)))["sig"]
    bodies = [TriggerDraft(cid, Wallet(1_000 + number)).signed() for number in range(300)]
    stop = {"triggerSigs": [ended], "signature": OWNER.sign_deactivation([ended])}
    *created, stopped = await asyncio.gather(
        *(client.post("/triggers", json=body) for body in bodies), client.post("/triggers/deactivate", json=stop)
    )
    assert stopped.status_code == 204
    refused = [response for response in created if response.status_code != 200]
    assert 0 < len(refused) <= 300 - turns.WAITING_MAX
    assert {(each.status_code, each.json()["code"], each.headers["retry-after"]) for each in refused} == {
        (503, "overloaded", "1")
    }
    stored = {f"0x{sig.hex()}" for (sig,) in await context.database.fetch("SELECT sig FROM triggers")}
    assert [body["sig"] in stored for body in bodies] == [each.status_code == 200 for each in created]
