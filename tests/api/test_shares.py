"""Every client has its share of a process: of the turns of long work, and of the memory for bodies on their way."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx2

from builders import TriggerDraft, Wallet, deploy
from muniment.service.app import Application
from muniment.service.running.limits import overload as turns
from muniment.service.running.limits.overload import HeldBodies
from without_server import InProcess

OWNER = Wallet(43)
PIECE_BYTES = 256
OVERLOADED = (503, "overloaded", "1")


def client_at(app: Application, address: str) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(transport=InProcess(app, address), base_url="http://test")


def refusal_of(answer: httpx2.Response) -> tuple[int, str, str]:
    return answer.status_code, answer.json()["code"], answer.headers["retry-after"]


async def in_pieces(body: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(body), PIECE_BYTES):
        yield body[start : start + PIECE_BYTES]


async def test_a_client_that_fills_its_turns_does_not_keep_another_client_s_creates_out(app: Application) -> None:
    async with client_at(app, "192.0.2.1") as greedy, client_at(app, "192.0.2.2") as modest:
        cid = await deploy(modest)
        floods = [TriggerDraft(cid, Wallet(1_000 + number)).signed() for number in range(3 * turns.WAITING_MAX)]
        few = [TriggerDraft(cid, Wallet(2_000 + number)).signed() for number in range(5)]
        *flooded, first, second, third, fourth, fifth = await asyncio.gather(
            *(greedy.post("/triggers", json=body) for body in floods),
            *(modest.post("/triggers", json=body) for body in few),
        )
        assert [each.status_code for each in (first, second, third, fourth, fifth)] == [200] * 5
        refused = [each for each in flooded if each.status_code != 200]
        assert refused
        assert {refusal_of(each) for each in refused} == {OVERLOADED}
        assert app.admission.overload.refused == len(refused)
        for body in few:
            assert (await modest.get(f"/triggers/{body['sig']}")).status_code == 200


async def test_a_body_beyond_the_client_s_share_of_memory_is_refused_and_nothing_is_stored(
    app: Application, client: httpx2.AsyncClient, nothing_stored: Callable[[], Any]
) -> None:
    draft = TriggerDraft(await deploy(client), OWNER)
    body = json.dumps(draft.signed()).encode()
    headers = {"content-type": "application/json"}
    app.admission.held = held = HeldBodies(client_bytes_max=len(body) - 1)
    async with nothing_stored():
        answer = await client.post("/triggers", content=in_pieces(body), headers=headers)
    assert refusal_of(answer) == OVERLOADED
    assert app.admission.overload.refused == 1
    assert held.held_bytes == 0
    app.admission.held = HeldBodies(client_bytes_max=len(body))
    assert (await client.post("/triggers", content=in_pieces(body), headers=headers)).status_code == 200
