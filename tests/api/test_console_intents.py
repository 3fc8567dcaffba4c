"""The pages of intents: what operations ask for, what they wait for, their life, and how they are found."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import httpx2
import pytest

from builders import Wallet
from conftest import NOW_MS, Clock
from console_world import SETTLERS
from intent_bodies import log_body, operations_proposal_body, proposal_body
from muniment.service.context import Context
from operation_data import (
    BASE,
    COIN,
    RECIPIENT,
    USDC,
    call_data,
    dynamic_call_data,
    offer_data,
    swap_data,
    transfer_data,
)
from operator_client import DEADLINE, IntentDraft, OperationsDraft, OperatorClient, operator_key
from page_site import Outline

SHORT = f"{RECIPIENT[:6]}…{RECIPIENT[-4:]}"


@pytest.fixture
async def operator(reader: httpx2.AsyncClient, context: Context) -> OperatorClient:
    return OperatorClient(reader, await operator_key(context))


async def text_of(operator: OperatorClient, intent: str) -> str:
    """The text of an intent's page, spaces made one."""
    answer = await operator.client.get(f"/console/intents/{intent}")
    assert answer.status_code == 200, answer.text
    return " ".join(Outline(answer.text).text.split())


def one(op: int, data: str, **members: Any) -> IntentDraft:
    """An intent of generation 1 with this operation."""
    return IntentDraft(members={"op": op, "data": data, "settler": SETTLERS[1], **members})


def several(*operations: tuple[int, str], **members: Any) -> OperationsDraft:
    """An intent of generation 2 with these operations."""
    made = [{"opType": kind, "user": Wallet(71).address, "data": data, "events": []} for kind, data in operations]
    return OperationsDraft(members={"operations": made, "settler": SETTLERS[0], **members})


WORDS: dict[str, tuple[IntentDraft, list[str]]] = {
    "swap": (one(0, swap_data()), ["gives 1.5 USDC on Base", f"gets at least 1.4 DAI on Base, for {SHORT}"]),
    "transfer": (one(1, transfer_data()), [f"0.25 USDC to {SHORT} on Base"]),
    "coin": (one(1, transfer_data(56, token=COIN, amount=3 * 10**16)), ["0.03 BNB to", "on BNB Smart Chain"]),
    "call": (one(2, call_data(value=10**15)), ["function transfer(address,uint256), 68 bytes, with 0.001 ETH"]),
    "unknown call": (one(2, call_data(data=b"\x12\x34\x56\x78")), ["function 0x12345678 not well known, 4 bytes"]),
    "empty call": (one(2, call_data(data=b"", value=1)), ["on Base, with 0.000000000000000001 ETH"]),
    "unknown chain": (one(1, transfer_data(77, amount=1_234_567)), ["1 234 567 of 0x8335…2913", "on chain 77"]),
    "unknown token": (one(1, transfer_data(token=Wallet(3).address)), ["250 000 of 0x"]),
    "solana": (one(3, "0x0102"), ["SVM call", "Not readable here.", "2 bytes0x0102"]),
    "no data": (one(1, "0x"), ["No data."]),
    "many": (one(1, transfer_data(count=25)), ["and 5 more"]),
    "two": (
        several((3, swap_data(destination=10)), (4, dynamic_call_data(2))),
        ["Cross-chain swap", "gives 1.5 USDC on Base", "on OP Mainnet, for", "2 calls on Base, made up when they run"],
    ),
    "second call": (several((2, call_data(1))), ["Call", "on Ethereum, function transfer(address,uint256)"]),
}  # fmt: skip


@pytest.mark.one_engine
async def test_what_an_operation_asks_for_is_said_in_words(operator: OperatorClient, subtests: pytest.Subtests) -> None:
    for number, (name, (draft, words)) in enumerate(WORDS.items()):
        with subtests.test(name):
            shown = await text_of(operator, await operator.recorded(replace(draft, number=number)))
            for each in words:
                assert each.replace("\N{NO-BREAK SPACE}", " ") in shown.replace("\N{NO-BREAK SPACE}", " "), shown


HOSTILE_DATA = {
    "cut off": transfer_data()[:-64],
    "another operation": swap_data()[:200],
    "offset outside": "0x" + "ff" * 32,
    "endless list": "0x" + f"{32:064x}{8453:064x}{64:064x}" + "ff" * 32,
    "offsets to one place": "0x" + f"{32:064x}{8453:064x}{64:064x}{500:064x}" + f"{0:064x}" * 40,
    "too long to read": transfer_data(count=180),
}


@pytest.mark.one_engine
async def test_data_that_cannot_be_read_is_shown_as_it_is(operator: OperatorClient, subtests: pytest.Subtests) -> None:
    for name, data in HOSTILE_DATA.items():
        with subtests.test(name):
            shown = await text_of(operator, await operator.recorded(one(1, data)))
            assert "Not readable here." in shown
            assert data in shown


@pytest.mark.one_engine
async def test_fees_are_in_tokens_where_all_chains_that_may_be_meant_agree(operator: OperatorClient) -> None:
    fees = [{"token": USDC, "amount": "1250000"}, {"token": COIN, "amount": "7000000"}]
    offer = proposal_body(1, data=offer_data(15 * 10**17), fees=["600000", "5"], description="quick")
    known = await operator.recorded(one(0, swap_data(), maxFees=fees, proposals=[offer]))
    page = (await operator.client.get(f"/console/intents/{known}")).text
    shown = " ".join(Outline(page).text.split())
    for words in ("1.25 USDC", "0.000000000007 ETH", "0.6 USDC", "1.5 DAI", "quick", "cannot be told"):
        assert words in shown, words
    assert f"1250000 base units of {USDC}" in page
    # USDC of Base is not known on the chain of the other operation, nor where the chain of one cannot be read.
    for number, other in enumerate(((1, transfer_data(chain_id=10)), (2, "0x01")), start=7):
        both = replace(several((0, swap_data()), other, maxFees=fees), number=number)
        shown = await text_of(operator, await operator.recorded(both))
        assert "1 250 000 of 0x8335…2913" in shown, shown
    unknown = await operator.recorded(one(0, "0x01", maxFees=fees, proposals=[offer]))
    shown = await text_of(operator, unknown)
    assert "7 000 000 of the chain's coin" in shown  # ETH, BNB, POL: nobody knows which
    assert "Offers" not in shown


@pytest.mark.one_engine
async def test_the_title_of_an_intent_says_what_moves_and_to_whom(operator: OperatorClient) -> None:
    for number, (draft, words) in enumerate((
        (one(1, transfer_data()), f"0.25 USDC to {SHORT} · Base"),
        (one(0, swap_data()), "1.5 USDC → at least 1.4 DAI · Base"),
        (several((1, transfer_data(10)), (2, "0x01")), f"250 000 of 0x8335…2913 to {SHORT} · OP Mainnet; Call (not re"),
    )):  # fmt: skip
        intent = await operator.recorded(replace(draft, number=number + 60))
        page = (await operator.client.get(f"/console/intents/{intent}")).text.replace("\N{NO-BREAK SPACE}", " ")
        title, head = (Outline(page[page.index(f"<{tag}>") : page.index(f"</{tag}>")]).text for tag in ("title", "h1"))
        assert title.startswith(words), title
        assert title.endswith(f" · {intent[:10]} · Muniment")
        assert head.startswith(words), head


@pytest.mark.one_engine
async def test_offers_are_shown_for_up_to_four_swaps(operator: OperatorClient) -> None:
    for count in (4, 5):
        offer = operations_proposal_body(1, datas=[offer_data(123 * 10**16)] * count)
        draft = replace(several(*[(0, swap_data())] * count, proposals=[offer]), number=count)
        intent = await operator.recorded(draft)
        shown = await text_of(operator, intent)
        assert ("1.23" in shown, "Offers" in shown) == (count == 4, count == 4)


@pytest.mark.one_engine
async def test_an_offer_that_cannot_be_read_is_left_out(operator: OperatorClient) -> None:
    for number, datas in enumerate(["0x", "0x01", offer_data(), offer_data(1, 2), "0x" + "ff" * 64]):
        draft = replace(one(0, swap_data(), proposals=[proposal_body(1, data=datas)]), number=number)
        page = await operator.client.get(f"/console/intents/{await operator.recorded(draft)}")
        assert '<td data-name="Offers"><span>–</span>' in page.text, datas


@pytest.mark.one_engine
async def test_fees_that_fit_no_list_of_tokens_stay_numbers(operator: OperatorClient) -> None:
    most = [{"token": USDC, "amount": "9"}, {"token": COIN, "amount": "9"}]
    for number, fees in enumerate([["1"], ["1", "2", "3"], list[str]()]):
        draft = one(1, transfer_data(), maxFees=most, proposals=[proposal_body(1, fees=fees)])
        intent = await operator.recorded(replace(draft, number=number))
        assert "0.000001 USDC" not in await text_of(operator, intent), fees


@pytest.mark.one_engine
async def test_a_transaction_leads_to_the_explorer_of_its_chain(operator: OperatorClient) -> None:
    sent = "0x" + "5a" * 32
    known = await operator.recorded(one(1, transfer_data(), transactionHash=sent, status="submitted"))
    links = Outline((await operator.client.get(f"/console/intents/{known}")).text).links
    assert [each for each in links if each.startswith("https:")] == [f"https://basescan.org/tx/{sent}"]
    unknown = await operator.recorded(one(1, "0x01", transactionHash=sent, status="submitted"))
    links = Outline((await operator.client.get(f"/console/intents/{unknown}")).text).links
    assert len([each for each in links if each.endswith(f"/tx/{sent}")]) > 5  # each chain with this contract
    between = several((3, swap_data(1, 10)), destTransactionHash=sent, status="submitted")
    links = Outline((await operator.client.get(f"/console/intents/{await operator.recorded(between)}")).text).links
    assert [each for each in links if "/tx/" in each] == [f"https://optimistic.etherscan.io/tx/{sent}"]


REJECTED = [proposal_body(1, status="rejected")]
LATE = [proposal_body(1, deadline="1500000000")]
WHY: dict[str, tuple[dict[str, Any], list[str], int, str]] = {
    "no proposal yet": ({}, [], 0, "No solver has made a proposal yet."),
    "all rejected so far": ({"proposals": REJECTED}, [], 0, "Every proposal so far was rejected."),
    "all late so far": ({"proposals": LATE}, ["enqueued"], 0, "The deadline of every proposal so far has passed."),
    "no proposal": ({}, [], 2, "Not carried out: no solver made an offer."),
    "all rejected": ({"proposals": REJECTED}, ["enqueued"], 2, "Not carried out: every offer was rejected."),
    "none sent": ({"proposals": LATE}, ["enqueued"], 2, "Not carried out: no offer was sent to the chain"),
    "perhaps too late": ({}, ["enqueued", "submitted"], 1, "Its deadline has passed. A transaction"),
    "too late": ({}, ["enqueued", "submitted"], 3, "Not carried out: a transaction was sent"),
    "discarded": ({}, ["discarded"], 0, "discarded it"),
    "failed": ({}, ["enqueued", "submitted", "failed"], 0, "failed on the chain"),
}


@pytest.mark.one_engine
@pytest.mark.parametrize("name", WHY)
async def test_the_page_says_why_nothing_has_happened(operator: OperatorClient, clock: Clock, name: str) -> None:
    members, moves, deadlines, words = WHY[name]
    intent = await operator.recorded(one(1, "0x", **members))
    for status in moves:
        clock.advance(seconds=5)
        assert (await operator.move(intent, status)).status_code == 200
    if deadlines:  # one: in the grace, more: after it
        clock.now_ms = DEADLINE * 1_000 + (1 if deadlines == 1 else 86_400_000)
    assert words in await text_of(operator, intent)


async def test_each_move_has_its_time_to_the_second(operator: OperatorClient, clock: Clock) -> None:
    intent = await operator.recorded(one(1, "0x"))
    for seconds, status in ((2, "enqueued"), (18_000, "submitted")):
        clock.advance(seconds=seconds)
        await operator.move(intent, status)
    shown = await text_of(operator, intent)
    assert "created20 Nov 2026, 19:48:00" in shown
    assert "enqueued20 Nov 2026, 19:48:02" in shown
    assert "submitted21 Nov 2026, 00:48:02" in shown


@pytest.mark.one_engine
async def test_the_life_shows_the_moves_that_are_to_come(operator: OperatorClient) -> None:
    intent = await operator.recorded(one(1, "0x"))
    ahead, page = {"": 3, "enqueued": 2, "submitted": 1, "failed": 0}, ""
    for status, count in ahead.items():
        if status:
            await operator.move(intent, status)
        page = (await operator.client.get(f"/console/intents/{intent}")).text
        assert page.count('<li class="ahead">') == count, status
    assert "not yet" not in page


async def test_an_intent_that_has_not_ended_can_be_followed(operator: OperatorClient) -> None:
    intent = await operator.recorded(one(1, "0x"))
    etag = (await operator.client.get(f"/intents/{intent}")).headers["etag"].replace('"', "&quot;")
    assert f'data-etag="{etag}"' in (await operator.client.get(f"/console/intents/{intent}")).text
    await operator.move(intent, "discarded")
    assert "data-etag" not in (await operator.client.get(f"/console/intents/{intent}")).text


async def test_the_newest_of_many_logs_are_shown(operator: OperatorClient) -> None:
    logs = [log_body(number) for number in range(60)]
    shown = await text_of(operator, await operator.recorded(one(1, "0x", logs=logs)))
    assert "the newest 50 of 60; all as JSON" in shown
    assert "line 59" in shown
    assert "line 9 " not in shown


async def test_intents_are_found_by_time_and_in_both_forms(operator: OperatorClient, clock: Clock) -> None:
    first = await operator.recorded(one(1, "0x"))
    clock.advance(hours=2)
    second = await operator.recorded(several((1, "0x")))
    for query, expected in {
        "": {first, second}, "generation=1": {first, second},
        "createdAfter=2026-11-20T20%3A00": {second}, "createdBefore=2026-11-20T20%3A00": {first},
        f"createdAfter={NOW_MS}": {second}, "op=1&user=&createdAfter=": {first, second}, "op=4": set[str](),
    }.items():  # fmt: skip
        links = Outline((await operator.client.get(f"/console/intents?{query}")).text).links
        assert {each.rpartition("/")[2] for each in links if "console/intents/0x" in each} == expected, query
    refused = await operator.client.get("/console/intents?createdAfter=soon")
    assert (refused.status_code, "createdAfter" in refused.text) == (400, True)


async def test_the_transaction_of_a_proposal_leads_to_its_intent(operator: OperatorClient) -> None:
    sent = "0x" + "6b" * 32
    offer = proposal_body(1, transactionHash=sent, status="submitted")
    intent = await operator.recorded(one(1, "0x", proposals=[offer]))
    answer = await operator.client.get("/console/find", params={"q": sent})
    assert (answer.status_code, answer.headers["location"]) == (303, f"../console/intents/{intent}")


async def test_the_service_page_tells_how_far_a_settlement_contract_was_followed(
    operator: OperatorClient, context: Context
) -> None:
    settler = bytes.fromhex(SETTLERS[0][2:])
    statement = "INSERT INTO chain_progress (chain_id, settler, next_block) VALUES (?, ?, ?)"
    await context.database.write(lambda tx: tx.execute(statement, (BASE, settler, 38_123_457)))
    shown = " ".join(Outline((await operator.client.get("/console/service")).text).text.split())
    assert "38,123,456" in shown
    assert "24 hours at most" in shown
