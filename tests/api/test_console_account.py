"""The home of an owner: what runs in the name of an address, what failed, and how its triggers are told apart."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import httpx2
import pytest

from answers import ok
from builders import Bundle, TriggerDraft, Wallet, cron, deploy, once, register
from console_world import HOSTILE, OWNERS, World
from muniment.protocol.triggers.types import TRIGGER_SIGS_MAX
from muniment.protocol.wire import iso_time
from muniment.service.app import Application
from muniment.service.context import Context
from operation_data import transfer_data
from operator_client import IntentDraft, OperatorClient, log, operator_key
from page_site import BROWSER, Outline
from without_server import InProcess

OWNER = OWNERS[0]
DAY_MS = 86_400_000


async def home(reader: httpx2.AsyncClient, wallet: Wallet = OWNER) -> Outline:
    """The account page of a wallet."""
    page = await reader.get("/console/account", params={"address": wallet.address})
    assert page.status_code == 200, page.text
    return Outline(page.text)


async def test_an_owner_sees_the_active_triggers_and_what_they_do(reader: httpx2.AsyncClient, world: World) -> None:
    shown = await home(reader)
    assert f"../console/triggers/{world.triggers[0]['sig']}" in shown.links
    assert f"../console/triggers/{world.triggers[4]['sig']}" not in shown.links  # it has ended
    for words in ("Active triggers 1", "Sweep rewards · every 6 hours", "“Sweep rewards to the treasury”"):
        assert words in shown.text
    assert re.search(r"next \d+ [A-Z][a-z]{2} \d{4}, \d\d:00 UTC \(in [^)]+\)", shown.text)
    monthly = await home(reader, OWNERS[2])
    assert "Threshold · on day 1 of each month at 09:30" in monthly.text
    assert "Base · limit 1" in monthly.text
    assert "with the next event" in (await home(reader, OWNERS[3])).text


@pytest.mark.one_engine
async def test_each_trigger_can_be_chosen_and_stopped(
    reader: httpx2.AsyncClient, context: Context, world: World
) -> None:
    page = (await reader.get("/console/account", params={"address": OWNERS[1].address})).text
    sig = world.triggers[5]["sig"]
    assert page.count("<li data-sig=") == 1  # the other one is deactivated
    assert f'<li data-sig="{sig}" data-protocol="{context.settings.protocol_name}">' in page
    assert page.count('type="checkbox"') == 2
    assert page.count(">Stop</button>") == 1


@pytest.mark.one_engine
async def test_the_text_of_a_stranger_is_text_in_an_account(reader: httpx2.AsyncClient, world: World) -> None:
    cid = world.cids["Hostile"]
    await register(reader, TriggerDraft(cid, OWNER, description=HOSTILE))
    shown = await home(reader)
    assert shown.handlers == []
    assert not {"img", "iframe", "b"} & set(shown.tags)
    assert not any(character in shown.text for character in "\u202e\u200b\x1b")
    assert "U+202E" in shown.text
    refused = Outline((await reader.get("/console/account", params={"address": HOSTILE})).text)
    assert (refused.handlers, "img" in refused.tags) == ([], False)


@pytest.mark.one_engine
async def test_intents_of_the_last_week_that_were_not_carried_out_are_shown_with_their_reasons(
    reader: httpx2.AsyncClient, context: Context, clock: Any
) -> None:
    operator = OperatorClient(reader, await operator_key(context))
    now_ms, owner = clock.now_ms, Wallet(70)
    for number, age_days in enumerate((8, 2, 1)):
        clock.now_ms = now_ms - age_days * DAY_MS
        lines = [("error", "Before"), ("error", f"reverted: Reason{number}"), ("info", "Afterwards")]
        said = [
            log(at, level=level, data=text, createdAt=iso_time(clock.now_ms + at))
            for at, (level, text) in enumerate(lines)
        ]
        members = {"user": owner.address, "status": "failed", "logs": said if number < 2 else []}
        members |= {"op": 1, "data": transfer_data()}
        await operator.recorded(IntentDraft(number, members=members))
    clock.now_ms = now_ms
    shown = (await home(reader, owner)).text
    assert "reverted: Reason1" in shown
    assert "reverted: Reason0" not in shown
    assert not any(text in shown for text in ("Before", "Afterwards"))
    assert "0.25\N{NO-BREAK SPACE}USDC" in shown
    assert shown.count("its transaction failed on the chain") == 2
    assert "None of this address." in (await home(reader, Wallet(71))).text


@pytest.mark.one_engine
async def test_only_where_one_status_has_more_than_is_shown_it_says_so(
    reader: httpx2.AsyncClient, context: Context
) -> None:
    operator, owner = OperatorClient(reader, await operator_key(context)), Wallet(74)
    for number, status in enumerate(["discarded", *["failed"] * 9]):
        await operator.recorded(IntentDraft(7400 + number, members={"user": owner.address, "status": status}))
    assert "of each status" not in (await home(reader, owner)).text
    await operator.recorded(IntentDraft(7410, members={"user": owner.address, "status": "failed"}))
    assert "At most 10 of each status" in (await home(reader, owner)).text


@pytest.mark.one_engine
async def test_without_an_address_it_asks_for_one_and_keeps_a_wrong_one(reader: httpx2.AsyncClient) -> None:
    asking = (await reader.get("/console/account")).text
    assert '<input name="address" value="" class="long"' in asking
    assert "aria-invalid" not in asking
    for given, words in {
        "0x12": "40 hex digits", OWNER.address.swapcase().replace("0X", "0x"): "wrong EIP-55 checksum",
    }.items():  # fmt: skip
        refused = await reader.get("/console/account", params={"address": given})
        assert refused.status_code == 200
        assert f'value="{given}"' in refused.text
        assert 'aria-invalid="true" aria-describedby="fault"' in refused.text
        assert words in refused.text
        assert "Copy the address from your wallet" in refused.text
    typed = await reader.get("/console/account", params={"address": f" {OWNER.address.lower()} "})
    assert f'data-address="{OWNER.address}"' in typed.text


@pytest.mark.one_engine
async def test_an_address_without_triggers_says_so(reader: httpx2.AsyncClient) -> None:
    shown = await home(reader, Wallet(72))
    assert "Nothing runs in the name of this address" in shown.text
    assert "ul" not in shown.tags


@pytest.mark.one_engine
async def test_as_many_triggers_are_shown_as_one_signature_ends(reader: httpx2.AsyncClient) -> None:
    cid, owner = await deploy(reader), Wallet(73)
    for number in range(TRIGGER_SIGS_MAX + 1):
        config = once(startDate=4_000_000_000_000) if number == TRIGGER_SIGS_MAX else cron()
        await register(reader, TriggerDraft(cid, owner, version=f"1.0.{number}", config=config))
    shown = await home(reader, owner)
    assert "Active triggers 100+" in shown.text
    assert "The newest 100. All of them" in shown.text
    assert shown.tags.count("li") == TRIGGER_SIGS_MAX
    assert f"../console/triggers?signer={owner.address}&active=true" in shown.links


async def test_the_triggers_of_one_function_are_found_among_many(reader: httpx2.AsyncClient) -> None:
    owner, cids = Wallet(75), [await deploy(reader, Bundle(f"Choice {each}")) for each in "abc"]
    for number in range(TRIGGER_SIGS_MAX + 3):
        await register(reader, TriggerDraft(cids[number == 0], owner, version=f"1.0.{number}"))
    ended = await register(reader, TriggerDraft(cids[2], owner))
    consent = {"triggerSigs": [ended["sig"]], "signature": owner.sign_deactivation([ended["sig"]])}
    assert (await reader.post("/triggers/deactivate", json=consent)).status_code == 204
    whole = (await reader.get("/console/account", params={"address": owner.address})).text
    assert [name for name in ("Choice a", "Choice b", "Choice c") if f">{name} 1.0.0</option>" in whole] == [
        "Choice a", "Choice b",
    ]  # fmt: skip
    asked = {"address": owner.address, "functionCid": cids[1]}
    page = Outline((await reader.get("/console/account", params=asked)).text)
    assert page.tags.count("li") == 1
    assert f"../console/triggers?signer={owner.address}&functionCid={cids[1]}&active=false" in page.links
    assert f'<option value="{cids[1]}" selected>' in (await reader.get("/console/account", params=asked)).text
    nothing = await reader.get("/console/account", params=asked | {"functionCid": cids[2]})
    assert f'<option value="{cids[2]}" selected>' in nothing.text
    assert "Nothing of this function runs in the name of this address" in nothing.text
    wrong = await reader.get("/console/account", params=asked | {"functionCid": "Qm"})
    assert (wrong.status_code, "invalid-cid" in wrong.text) == (400, True)
    assert "<select" not in (await reader.get("/console/account", params={"address": OWNER.address})).text


@pytest.mark.one_engine
async def test_each_trigger_of_a_renamed_registry_names_its_domain(
    reader: httpx2.AsyncClient, context: Context
) -> None:
    cid, owner = await deploy(reader), Wallet(74)
    before = await register(reader, TriggerDraft(cid, owner))
    named = replace(context, settings=replace(context.settings, protocol_name="Renamed"))
    transport = InProcess(Application(named))
    async with httpx2.AsyncClient(transport=transport, base_url="http://test", headers=BROWSER) as renamed:
        params = {"functionCid": cid, "version": "2.0.0", "config": cron(), "input": {}}
        signable = ok(await renamed.post("/triggers/sign-params", json=params)).json()
        body = {
            "description": "Later", "typedData": {"types": signable["types"], "values": signable["message"]},
            "sig": owner.sign_typed_data(signable), "signer": owner.address,
        }  # fmt: skip
        since = ok(await renamed.post("/triggers", json=body)).json()
        page = (await renamed.get("/console/account", params={"address": owner.address})).text
    assert f'data-sig="{before["sig"]}" data-protocol="{context.settings.protocol_name}"' in page
    assert f'data-sig="{since["sig"]}" data-protocol="Renamed"' in page
