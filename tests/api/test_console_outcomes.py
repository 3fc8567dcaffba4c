"""What was not carried out, and why: counted for each trigger, on the home of its owner and on the overview."""

from __future__ import annotations

import re
from typing import Any

import httpx2
import pytest

from answers import ok
from builders import TriggerDraft, Wallet, cron, deploy, register
from conftest import Clock
from muniment.service.context import Context
from operator_client import IntentDraft, OperationsDraft, OperatorClient, operator_key, proposal
from page_site import Outline
from run_bodies import body_of, hash_of, run_of

MINUTE_MS = 60_000
OWNER = Wallet(70)
HASH = "0x" + "ab" * 32
NOBODY = "Nobody fulfils intents here"


async def text_of(reader: httpx2.AsyncClient, path: str) -> str:
    """The text of a page, spaces made one."""
    answer = await reader.get(path)
    assert answer.status_code == 200, answer.text
    return " ".join(Outline(answer.text).text.split())


def pages_of(trigger: dict[str, Any]) -> list[str]:
    """The pages that say what came of a trigger."""
    return [
        "/console", "/console/triggers", f"/console/triggers/{trigger['sig']}",
        f"/console/account?address={trigger['signer']}", f"/console/addresses/{trigger['signer']}",
        f"/console/functions/{trigger['functionCid']}",
    ]  # fmt: skip


async def each_minute(reader: httpx2.AsyncClient) -> dict[str, Any]:
    """A new trigger that is due each minute."""
    draft = TriggerDraft(await deploy(reader), OWNER, config=cron(schedule="* * * * *", delta="5m"))
    return await register(reader, draft)


@pytest.fixture
async def operator(reader: httpx2.AsyncClient, context: Context) -> OperatorClient:
    return OperatorClient(reader, await operator_key(context))


async def test_intents_that_were_not_carried_out_are_counted_with_their_reasons(
    reader: httpx2.AsyncClient, operator: OperatorClient, clock: Clock
) -> None:
    trigger = await each_minute(reader)
    soon = clock.now_ms // 1000 + 300
    sent = {"status": "submitted", "transactionHash": HASH}
    for number, members in enumerate(({}, {}, {}, {"proposals": [proposal()]}, {"status": "failed"}, sent)):
        await operator.recorded(
            IntentDraft(number, soon, {"configSig": trigger["sig"], "user": OWNER.address, **members})
        )
    first = {"triggerSig": trigger["sig"], "feePayer": OWNER.address}
    for number, members in enumerate(({}, {"status": "discarded"}, {"status": "succeeded"})):
        await operator.recorded(OperationsDraft(20 + number, soon, {**first, **members}))
    open_ = "2 of the newest 9 intents not carried out:"
    for path in pages_of(trigger):
        assert open_ in await text_of(reader, path), path
    clock.advance(hours=2)
    reasons = {
        "no solver made an offer": 4, "no offer was sent to the chain before the deadline": 1,
        "its transaction failed on the chain": 1, "a transaction was sent, and no success was seen in time": 1,
        "the relayer discarded it": 1,
    }  # fmt: skip
    for path in pages_of(trigger):
        shown = await text_of(reader, path)
        assert "8 of the newest 9 intents not carried out: no solver made an offer (4) · " in shown, path
        assert all(f"{why} ({count})" in shown for why, count in reasons.items()), path
    overview = await text_of(reader, "/console")
    _, _, counted = overview.partition("Not carried out, last 24 hours")
    assert all(f"{why} {count}" in counted for why, count in reasons.items()), overview
    home = await text_of(reader, f"/console/account?address={OWNER.address}")
    _, _, listed = home.partition("Not carried out in the last week")
    assert all(listed.count(why) == count for why, count in reasons.items()), listed


async def test_runs_that_came_to_nothing_are_counted_and_aborts_are_declined(
    reader: httpx2.AsyncClient, operator: OperatorClient, clock: Clock
) -> None:
    trigger = await each_minute(reader)
    clock.advance(minutes=30)
    made: list[tuple[str, str | None, dict[str, Any]]] = [
        ("missed", "gap", {"missedCount": 1, "inputs": [], "blocks": [], "logs": []}), ("skipped", "fee-limit", {}),
        ("stopped", "fuel", {}), ("stopped", "abort", {}), ("stopped", "abort", {}), ("nothing", None, {}),
        ("incomplete", "no-answer", {}), ("intents", None, {"outputs": [{"hash": HASH}]}),
    ]  # fmt: skip
    hashes = list[str]()
    for number, (result, code, members) in enumerate(made):
        reason = {"reason": {"code": code, "text": "the price is too high"}} if code else {}
        run = run_of(trigger, clock.now_ms - (number + 10) * MINUTE_MS, result=result, **reason, **members)
        times = {"from": run.timestamp, "to": run.timestamp} if result == "missed" else {}
        ok(await reader.post("/executions", json={**body_of(run), **times}, headers=operator.headers))
        hashes.append(hash_of(run))
    said = "3 of the newest 8 runs not carried out: "
    declined = "2 of the newest 8 runs declined by the function"
    for path in pages_of(trigger):
        shown = await text_of(reader, path)
        assert said in shown, path
        assert declined in shown, path
    clock.advance(minutes=2)  # its intent does not come any more
    reasons = {
        "no relayer of this operator ran then": 1, "the function used up its fuel": 1,
        "the fee of this operator is above the trigger's executionFeeLimit": 1,
        "too late when published, or refused": 1,
    }  # fmt: skip
    for path in pages_of(trigger):
        shown = await text_of(reader, path)
        assert "4 of the newest 8 runs not carried out: " in shown, path
        assert all(f"{why} ({count})" in shown for why, count in reasons.items()), path
    _, _, counted = (await text_of(reader, "/console")).partition("Not carried out, last 24 hours")
    assert all(f"{why} {count}" in counted for why, count in reasons.items())
    assert "declined by the function 2" in counted
    every = await text_of(reader, "/console/runs")
    assert every.count("declined“the price is too high”") == 2
    assert "1 intenttoo late when published: 17 minutes after it was due" in every
    assert "The function declined to act. “the price is too high”" in await text_of(
        reader, f"/console/runs/{hashes[3]}"
    )


async def test_a_run_says_that_it_was_published_too_late_for_its_intent(
    reader: httpx2.AsyncClient, operator: OperatorClient, clock: Clock
) -> None:
    trigger = await each_minute(reader)
    clock.advance(minutes=20)
    late = run_of(trigger, clock.now_ms - 9 * MINUTE_MS, result="intents", outputs=[{"hash": HASH}])
    ok(await reader.post("/executions", json=body_of(late), headers=operator.headers))
    page = f"/console/runs/{hash_of(late)}"
    assert "Not carried out" not in await text_of(reader, page)  # its intent may still come
    clock.advance(minutes=1)
    shown = await text_of(reader, page)
    assert "Not carried out: its intent was too late when published: 9 minutes after it was due." in shown
    assert f"{HASH}too late when published" in shown
    in_time = run_of(trigger, clock.now_ms)
    draft = IntentDraft(1, in_time.timestamp // 1000 + 300, {"configSig": trigger["sig"], "user": OWNER.address})
    sends = run_of(trigger, clock.now_ms, result="intents", outputs=[{"hash": draft.hash}])
    ok(await reader.post("/executions", json=body_of(sends), headers=operator.headers))
    await operator.recorded(draft.saying(executionHash=hash_of(sends)))
    shown = await text_of(reader, page)
    assert "its intent was too late when published: 9 minutes after it was due, and the function gives" in shown
    assert "gives its intents 5 minutes." in shown
    assert "Not carried out" not in await text_of(reader, f"/console/runs/{hash_of(sends)}")
    wizard = (await reader.get(f"/console/triggers/new?functionCid={trigger['functionCid']}")).text
    assert 'data-life="300"' in wizard


async def test_a_registry_where_nothing_moved_for_a_day_says_that_nobody_fulfils_intents(
    reader: httpx2.AsyncClient, operator: OperatorClient, clock: Clock
) -> None:
    trigger = await each_minute(reader)
    paths = ["/console", f"/console/account?address={OWNER.address}", f"/console/triggers/{trigger['sig']}"]
    intent = await operator.recorded(IntentDraft(1))
    for path in paths:
        assert NOBODY in await text_of(reader, path), path
    ok(await operator.move(intent, "enqueued"))
    clock.advance(minutes=1)  # counts are kept for half a minute
    for path in paths:
        assert NOBODY not in await text_of(reader, path), path
    clock.advance(hours=24)
    await operator.recorded(IntentDraft(2))
    for path in paths:
        assert NOBODY in await text_of(reader, path), path


@pytest.mark.one_engine
async def test_only_what_happened_and_what_is_ready_is_green(reader: httpx2.AsyncClient) -> None:
    page = (await reader.get("/console")).text
    (href,) = re.findall(r'<link rel="stylesheet" href="\./([^"]*style\.css)"', page)
    sheet = (await reader.get(f"/{href}")).text
    greens = {
        name
        for selectors, style in re.findall(r"([^{}]*)\{([^{}]*)\}", sheet)
        if re.search(r"var\(--(ok|succeeded)\)", style)
        for name in re.findall(r"\.state\.(\w+)", selectors)
    }
    assert greens == {"succeeded", "ready"}
