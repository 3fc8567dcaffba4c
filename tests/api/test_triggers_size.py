"""The largest new trigger, and the largest typed data that a wallet is asked to sign."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

import httpx2
import pytest
from trigger_world import check_refusal

from builders import Bundle, TriggerDraft, Wallet, deploy
from muniment.service.app import Application
from muniment.service.context import Context
from without_server import InProcess

BYTES_MAX = 128 * 1024
INPUTS = {"text": "string"}
JSON = {"content-type": "application/json"}


@pytest.fixture
async def cid(client: httpx2.AsyncClient) -> str:
    return await deploy(client, Bundle(inputs=INPUTS))


def body_of(cid: str, length: int, **members: Any) -> bytes:
    """A signed body of so many bytes."""

    def signed(text: str) -> bytes:
        draft = TriggerDraft(cid, inputs=INPUTS, input={"text": text}, **members)
        return json.dumps(draft.signed(), separators=(",", ":"), ensure_ascii=False).encode()

    return signed("x" * (length - len(signed(""))))


async def in_chunks(body: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(body), 50_000):
        yield body[start : start + 50_000]


@pytest.mark.parametrize("is_chunked", [False, True])
async def test_a_new_trigger_has_at_most_128_kib(
    client: httpx2.AsyncClient, cid: str, nothing_stored: Callable[[], Any], *, is_chunked: bool
) -> None:
    def sent(body: bytes) -> Any:
        return in_chunks(body) if is_chunked else body

    async with nothing_stored():
        for length in (BYTES_MAX + 1, 2 * BYTES_MAX - 1):
            response = await client.post("/triggers", content=sent(body_of(cid, length)), headers=JSON)
            assert str(BYTES_MAX) in check_refusal(response, 413, "body-too-large")["detail"]
    body = body_of(cid, BYTES_MAX)
    response = await client.post("/triggers", content=sent(body), headers=JSON)
    assert (response.status_code, response.json()["sig"]) == (200, json.loads(body)["sig"])


async def test_a_trigger_that_was_stored_under_another_limit_is_still_answered(
    client: httpx2.AsyncClient, context: Context, cid: str
) -> None:
    body = body_of(cid, BYTES_MAX + 1000)
    longer = replace(context, settings=replace(context.settings, trigger_bytes_max=2 * BYTES_MAX))
    transport = InProcess(Application(longer))
    async with httpx2.AsyncClient(transport=transport, base_url="http://test") as before:
        stored = await before.post("/triggers", content=body, headers=JSON)
    assert stored.status_code == 200
    again = await client.post("/triggers", content=body, headers=JSON)
    assert (again.status_code, again.json()) == (200, stored.json())
    sig = stored.json()["sig"]
    ended = {"triggerSigs": [sig], "signature": Wallet().sign_deactivation([sig])}
    assert (await client.post("/triggers/deactivate", json=ended)).status_code == 204
    check_refusal(await client.post("/triggers", content=body, headers=JSON), 409, "trigger-deactivated")


async def test_typed_data_that_a_wallet_is_asked_to_sign_can_be_posted_with_any_description(
    client: httpx2.AsyncClient, cid: str
) -> None:
    draft = TriggerDraft(cid, inputs=INPUTS, description="\U0001f600" * 1000)

    async def status(path: str, length: int) -> int:
        params = {
            "functionCid": cid, "version": draft.version, "config": draft.config, "input": {"text": "é" * length},
        }  # fmt: skip
        response = await client.post(path, json=params)
        if response.status_code == 413:
            assert str(BYTES_MAX) in check_refusal(response, 413, "body-too-large")["detail"]
        return response.status_code

    least, most = 0, BYTES_MAX // 2
    while most - least > 1:
        middle = (least + most) // 2
        least, most = (middle, most) if await status("/triggers/sign-params", middle) == 200 else (least, middle)
    assert [await status("/triggers/preview", length) for length in (least, most)] == [200, 413]
    draft.input = {"text": "é" * least}
    body = json.dumps(draft.signed(), separators=(",", ":"), ensure_ascii=False).encode()
    assert BYTES_MAX - 100 < len(body) <= BYTES_MAX
    assert (await client.post("/triggers", content=body, headers=JSON)).status_code == 200
