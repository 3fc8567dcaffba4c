"""Rows that say what they are: functions by name, amounts in units, chains and schedules in words, and who signs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import httpx2
import pytest

from builders import Bundle, TriggerDraft, Wallet, cron, deploy, event, once, register
from conftest import NOW_MS
from console_world import HOSTILE, SETTLERS, World
from muniment.protocol.evm.event_signature import event_topic
from muniment.service.console import beside, rows
from muniment.service.context import Context
from operation_data import COIN, RECIPIENT, USDC, call_data, dynamic_call_data, swap_data, transfer_data
from operator_client import IntentDraft, OperationsDraft, OperatorClient, operator_key
from page_site import Outline

SHORT = f"{RECIPIENT[:6]}…{RECIPIENT[-4:]}"
DAY_MS = 86_400_000


async def shown(reader: httpx2.AsyncClient, path: str) -> str:
    """The text of a page, spaces made one."""
    answer = await reader.get(path)
    assert answer.status_code == 200, answer.text
    return " ".join(Outline(answer.text).text.replace("\N{NO-BREAK SPACE}", " ").split())


PAY = {"chainId": "uint32", "pay": "TokenAmount", "into": "Token", "to": "address", "memo": "string", "dry": "bool"}
GIVEN: dict[str, Any] = {
    "chainId": "8453", "pay": {"token": {"address": USDC, "chainId": "8453"}, "amount": "1.5"},
    "into": {"address": COIN, "chainId": "8453"}, "to": Wallet(9).address, "memo": HOSTILE, "dry": False,
}  # fmt: skip
# Types, input, config, and the words of the row.
TRIGGERS: dict[str, tuple[dict[str, str], dict[str, Any], dict[str, Any], list[str]]] = {
    "amounts": (
        PAY, GIVEN, cron(schedule="30 9 * * *"),
        ["Base · pay 1.5 USDC (1500000) · Base · into ETH · Base · 3 more", "every day at 09:30", "next in 13 hours"],
    ),
    "unknown token": (
        {"pay": "TokenAmount"}, {"pay": {"token": {"address": Wallet(9).address, "chainId": "77"}, "amount": "0.25"}},
        cron(), ["pay 0.25 of 0x", "· chain 77"],
    ),
    "hex": (
        {"chainId": "uint32", "into": "Token"}, {"chainId": "0x3e7", "into": {"address": COIN, "chainId": "0x2105"}},
        cron(), ["chainId 0x3e7 · into ETH · Base"],
    ),
    "a token on a chain that is not here": (
        {"chainId": "uint32", "token": "address"}, {"chainId": 999, "token": USDC}, cron(),
        ["chainId 999 · token 0x8335…2913"],
    ),
    "a list": ({"flags": "string", "chainNote": "string"}, {"flags": "[]", "chainNote": "8453"}, cron(),
        ["flags [] · chainNote 8453"],
    ),
    "token by address": (
        {"chainId": "uint32", "token": "address", "amount": "uint256"},
        {"chainId": "8453", "token": USDC, "amount": "1500000"}, cron(),
        ["Base · 1.5 USDC (1500000)"],
    ),
    "the token of another chain": (
        {"chainId": "uint32", "token": "address"}, {"chainId": "1", "token": USDC}, cron(),
        [f"Ethereum · token {USDC[:6]}…{USDC[-4:]}"],
    ),
    "a token of one of two chains": (
        {"fromChain": "uint32", "toChain": "uint32", "token": "address"},
        {"fromChain": 999, "toChain": 8453, "token": USDC}, cron(), [f"· Base · token {USDC[:6]}…{USDC[-4:]}"],
    ),
    "a text": ({"memo": "string"}, {"memo": "x" * 60}, cron(), [f"memo {'x' * 11}…{'x' * 12}"]),
    "amounts after everything else": (
        {"a": "string", "b": "string", "c": "string", "d": "bool", "chain": "uint8", "token": "address"}
        | {"amount": "uint256", "maxAmountIn": "uint256", "tokenIn": "address"},
        {"a": "1", "b": "2", "c": "3", "d": True, "chain": 100, "token": COIN, "amount": str(10**18), "maxAmountIn": 7}
        | {"tokenIn": USDC}, cron(),
        [f"a 1 · 1 xDAI (1000000000000000000) · maxAmountIn 7 base units of {USDC[:6]}…{USDC[-4:]} · 4 more"],
    ),
    "event": (
        {}, {}, event(topics=[[event_topic("Transfer(address,address,uint256)")]]),
        ["on Transfer · Base"],
    ),
    "any event": ({}, {}, event(chainId=8453, topics=[]), ["on an event · Base"]),
    "once": ({}, {}, once(startDate=NOW_MS + 2 * DAY_MS), ["oncenext in 2 days"]),
    "odd schedule": ({}, {}, cron(schedule="1-7 3 * 2 *"), ["1-7 3 * 2 *"]),
    "ends first": ({}, {}, cron(schedule="0 0 1 1 *", endDate=NOW_MS + DAY_MS), ["none before it ends"]),
}  # fmt: skip


@pytest.mark.one_engine
@pytest.mark.parametrize("name", TRIGGERS)
async def test_the_row_of_a_trigger_says_what_it_may_do_and_when(reader: httpx2.AsyncClient, name: str) -> None:
    kinds, given, config, words = TRIGGERS[name]
    cid = await deploy(reader, Bundle("Pay", "1.0.0", "Pays", inputs=kinds))
    draft = TriggerDraft(cid, inputs=kinds, input=given, config=config, description="rent")
    sig = (await register(reader, draft))["sig"]
    text = await shown(reader, "/console/triggers")
    for each in [*words, "Pay 1.0.0", "“rent”"]:
        assert each in text, text
    page = (await reader.get("/console/triggers")).text
    assert f'<a class="row" href="../console/triggers/{sig}">' in page
    assert "onerror=" not in page.replace("&quot;", "")[: page.index("<main")]
    assert ("· USDC on Base" in await shown(reader, f"/console/triggers/{sig}")) == (name == "token by address")


@pytest.mark.one_engine
async def test_money_is_said_before_it_moves_wherever_a_trigger_is(reader: httpx2.AsyncClient) -> None:
    kinds = {"chainId": "uint32", "tokenIn": "address", "amountIn": "uint256", "minAmountOut": "uint256"}
    given = {"chainId": "8453", "tokenIn": USDC, "amountIn": "12500000", "minAmountOut": "9"}
    cid = await deploy(reader, Bundle("Sell", "1.0.0", "Sells", inputs=kinds))
    trigger = await register(reader, TriggerDraft(cid, inputs=kinds, input=given, config=cron()))
    said = "amountIn 12.5 USDC (12500000)"
    page = f"/console/triggers/{trigger['sig']}"
    for path in ("/console/triggers", page, f"/console/account?address={trigger['signer']}"):
        assert said in await shown(reader, path), path
    whole = (await reader.get(page)).text
    assert f"Sell every 6 hours, Base · {said} · minAmountOut 9 · Muniment</title>" in whole
    assert f'inputs: Base · {said} · minAmountOut 9"' in whole  # of the dialog that asks before it stops


def one(op: int, data: str, **members: Any) -> IntentDraft:
    """An intent of generation 1 with this operation."""
    return IntentDraft(members={"op": op, "data": data, "settler": SETTLERS[1], **members})


def several(*operations: tuple[int, str]) -> OperationsDraft:
    """An intent of generation 2 with these operations."""
    made = [{"opType": kind, "user": Wallet(71).address, "data": data, "events": []} for kind, data in operations]
    return OperationsDraft(members={"operations": made, "settler": SETTLERS[0]})


INTENTS: dict[str, tuple[IntentDraft, str]] = {
    "swap": (one(0, swap_data()), "1.5 USDC → at least 1.4 DAI · Base"),
    "transfer": (one(1, transfer_data()), f"0.25 USDC to {SHORT} · Base"),
    "transfers": (
        one(1, transfer_data(count=5)), f"0.25 USDC to {SHORT}, 0.25 USDC to {SHORT} and 3 more · Base"
    ),
    "unknown token": (one(1, transfer_data(token=Wallet(3).address)), "250 000 of 0x"),
    "call": (one(2, call_data()), "call transfer(address,uint256) of USDC · Base"),
    "unknown call": (one(2, call_data(data=b"\x12\x34\x56\x78")), "call 0x12345678 not well known of USDC · Base"),
    "coins": (one(2, call_data(data=b"", value=10**18)), "1 ETH to USDC · Base"),
    "a call with coins": (one(2, call_data(value=10**18)), "of USDC with 1 ETH · Base"),
    "not readable": (one(3, "0x0102"), "SVM call (not readable here)"),
    "between chains": (
        several((3, swap_data(destination=10)), (4, dynamic_call_data(2)), (1, transfer_data())),
        "1.5 USDC → at least 1.4 DAI · Base → OP Mainnet; 2 calls, made up when they run · Base and 1 more",
    ),
}  # fmt: skip


@pytest.mark.one_engine
async def test_the_row_of_an_intent_says_what_it_asks_for(
    reader: httpx2.AsyncClient, context: Context, subtests: pytest.Subtests
) -> None:
    operator = OperatorClient(reader, await operator_key(context))
    for number, (name, (draft, words)) in enumerate(INTENTS.items()):
        with subtests.test(name):
            intent = await operator.recorded(replace(draft, number=number))
            text = await shown(reader, "/console/intents")
            assert words in text
            assert "deadline in 23 hours" in text
            await operator.move(intent, "discarded")
    assert "deadline" not in (await shown(reader, "/console/intents")).replace("Deadline", "")


@pytest.mark.one_engine
async def test_the_row_of_an_intent_names_the_function_of_its_trigger(
    reader: httpx2.AsyncClient, world: World, context: Context
) -> None:
    page = (await reader.get("/console/intents")).text
    assert f'href="../console/triggers/{world.triggers[2]["sig"]}" title="Its trigger"><bdi>Threshold</bdi>' in page
    operator = OperatorClient(reader, await operator_key(context))
    await operator.recorded(one(1, transfer_data(), configSig="0x" + "ff" * 65))  # of a trigger that nobody signed
    assert '<td data-name="Function"><span>–</span>' in (await reader.get("/console/intents")).text


async def test_the_row_of_a_function_counts_its_triggers_and_their_signers(
    reader: httpx2.AsyncClient, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = await shown(reader, "/console/functions")
    assert "2 active triggers of 2 signers" in text  # Sweep rewards: one of its four was ended, one is past its end
    assert "1 active trigger of 1 signer" not in text
    assert text.count("no active trigger") == 2  # Refill, Hostile
    for module in (beside, rows):
        monkeypatch.setattr(module, "SIGNED_MAX", 2)
    assert "2 or more active triggers of 2 or more signers" in await shown(reader, "/console/functions")
    found = await shown(reader, f"/console/triggers?functionCid={world.cids['Sweep rewards']}&active=true")
    assert found.count("Sweep rewards 2.0.0") == 2


@pytest.mark.one_engine
async def test_an_address_and_a_function_are_not_said_in_each_row(reader: httpx2.AsyncClient, world: World) -> None:
    address = (await reader.get(f"/console/addresses/{world.triggers[0]['signer']}")).text
    for name in ("Signer", "User", "Creator"):
        assert f'data-name="{name}"' not in address
    function = (await reader.get(f"/console/functions/{world.cids['Sweep rewards']}")).text
    assert 'data-name="Signer"' in function


@pytest.mark.one_engine
async def test_the_row_of_a_run_says_whose_it_is_and_what_came_of_it(reader: httpx2.AsyncClient, world: World) -> None:
    page = (await reader.get("/console/runs")).text
    for words in ("2 intents", "declined", "nothing", "missed, gap"):
        assert f"<bdi>Sweep rewards</bdi>: {words}</a>" in page
    assert '<span class="sub">“<bdi>price is above the limit</bdi>”</span>' in page
    assert f'href="../console/runs/{world.runs["intents"]}"><bdi>Sweep rewards</bdi>: 2 intents</a>' in page
    assert f'href="../console/triggers/{world.triggers[0]["sig"]}"' in page
    of_one = (await reader.get(f"/console/triggers/{world.triggers[0]['sig']}")).text
    assert f'href="../../console/runs/{world.runs["intents"]}">2 intents</a>' in of_one
