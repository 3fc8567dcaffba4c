"""What the wizard and the end of a trigger do with mistakes of readers, of links, of functions and of the registry."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import httpx2
import pytest
from playwright.async_api import Locator, Page, Request, Route, expect

from answers import ok
from browsing import Watch, Window, violations
from builders import Bundle, Wallet, deploy
from console_world import HOSTILE, Registry
from injected_wallet import InjectedWallet, choose, opened, wizard_of
from muniment.protocol.evm.hashing import keccak256

pytestmark = pytest.mark.asyncio(loop_scope="session")
OWNER, OTHER = Wallet(62), Wallet(82)
CONTRACT = Wallet(99).address


def field(page: Page, label: str) -> Locator:
    """A field with its hint and what is wrong with it."""
    return page.locator(".field", has=page.get_by_label(label, exact=True))


def sign(page: Page) -> Locator:
    return page.get_by_role("button", name="Sign in the wallet")


def sent(watch: Watch, path: str) -> list[Request]:
    """The requests that change something at this path."""
    return [each for each in watch.requests if each.method == "POST" and each.url.endswith(path)]


def message(watch: Watch) -> dict[str, Any]:
    """What the last question to the registry wanted to be signed."""
    return json.loads(sent(watch, "/triggers/sign-params")[-1].post_data or "")


async def test_a_function_chosen_by_hand_is_still_there_after_a_reload(window: Window) -> None:
    async with opened(window, "console/triggers/new") as (page, _):
        await page.get_by_label("Function").fill("thresh")
        await page.get_by_label("Function").press("Enter")
        await page.get_by_role("link", name="Threshold 0.3.1").click()
        await page.get_by_label("limit · uint256").fill("5e18")
        await page.get_by_label("Kind").select_option("Once")
        await page.reload()
        await expect(page.get_by_label("limit · uint256")).to_have_value("5e18")
        await expect(field(page, "limit · uint256")).to_contain_text("= 5 × 10¹⁸")
        await expect(page.get_by_label("Begins (UTC)")).to_be_visible()
        await expect(page.get_by_label("Schedule")).to_be_hidden()


async def test_what_is_safe_is_the_default_and_the_rest_a_choice(window: Window, registry: Registry) -> None:
    async with opened(window, wizard_of(registry)) as (page, watch):
        await expect(sign(page)).to_be_enabled()
        asked = message(watch)
        days = (asked["config"]["endDate"] - await page.evaluate("Date.now()")) / 86_400_000
        assert 89.9 < days <= 90
        assert asked["executionFeeLimit"] == str(10**18)
        await page.get_by_label("Ends", exact=True).select_option(label="never: only a deactivation ends it")
        await expect(page.locator(".preview")).to_contain_text("It never ends")
        await page.get_by_label("Fee limit for each run").select_option("no limit")
        await expect(page.locator(".preview")).to_contain_text("no limit on the fee")
        await expect(page.get_by_label("US dollars")).to_be_hidden()
        asked = message(watch)
        assert (asked["config"]["endDate"], asked["executionFeeLimit"]) == (0, "0")
        await page.get_by_label("Fee limit for each run").select_option("at most")
        await page.get_by_label("US dollars").fill("0.05")
        await expect(page.locator(".preview")).to_contain_text("at most 0.05 US dollars (50000000000000000)")
        await page.get_by_label("US dollars").fill("0")
        await expect(page.locator(".faults")).to_contain_text("US dollars: an amount above 0")
        await page.reload()
        await expect(page.get_by_label("Ends", exact=True)).to_have_value("none")
        await expect(page.get_by_label("Ends (UTC)")).to_be_hidden()


async def test_a_run_may_be_late_by_the_interval_of_its_schedule(window: Window, registry: Registry) -> None:
    async with opened(window, wizard_of(registry)) as (page, _):
        count = page.get_by_label("A run may be late by")
        for schedule, minutes in (("*", "1"), ("0", "5"), ("*/2", "2"), ("0,59", "5"), ("7/4", "5"), ("no", "5")):
            await page.get_by_label("Minute", exact=True).fill(schedule)
            await expect(count).to_have_value(minutes)
        await page.get_by_label("Schedule").select_option("Every hour")
        await expect(count).to_have_value("5")


async def test_an_amount_of_a_known_token_is_typed_in_its_units(window: Window, registry: Registry) -> None:
    async with httpx2.AsyncClient(base_url=registry.url) as client:
        cid = await deploy(client, Bundle("Pay", "1.0.0", "Pays", {"much": "TokenAmount"}))
    async with opened(window, f"console/triggers/new?functionCid={cid}") as (page, watch):
        missing = page.locator(".faults a")
        await expect(missing.first).to_have_text("much · TokenAmount: Chain")
        await missing.nth(2).click()
        await expect(page.get_by_label("Amount, in units of the token")).to_be_focused()
        await page.keyboard.type("1.5")
        await page.get_by_label("Chain").first.select_option("8453")
        await page.get_by_label("Token", exact=True).select_option("USDC")
        await expect(page.locator("#wizard")).to_contain_text("= 1500000 base units")
        await expect(page.locator(".preview")).to_contain_text("1.5 USDC (1500000) on Base")
        usdc = "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913"
        assert message(watch)["input"] == {"much": {"token": {"address": usdc, "chainId": "8453"}, "amount": "1.5"}}
        assert await violations(page) == []
        await page.reload()
        await expect(page.get_by_label("Token", exact=True)).to_have_value(usdc)
        await expect(page.get_by_label("Address of the token")).to_be_hidden()
        await page.get_by_label("Chain").first.select_option("10")
        await expect(page.get_by_label("Token", exact=True)).to_have_value("")
        await expect(page.locator(".faults")).to_contain_text("much · TokenAmount: Token: choose one")
        watch.expect_refusals()


async def test_next_runs_are_told_by_the_readers_clock(window: Window, registry: Registry) -> None:
    session = await window.context.new_cdp_session(window.page)
    await session.send("Emulation.setTimezoneOverride", {"timezoneId": "Africa/Lagos"})
    config = {"type": 0, "schedule": "30 9 1 1 *", "delta": "1h", "endDate": 0}
    async with opened(window, wizard_of(registry, config=config)) as (page, _):
        runs = page.locator(".preview li", has_text="in Africa/Lagos)")
        words = re.compile(r"^1 Jan \d{4}, 09:30 UTC \(1 Jan \d{4}, 10:30 in Africa/Lagos\)$")
        await expect(runs.first).to_have_text(words)
        await expect(runs).to_have_count(5)
    await session.send("Emulation.setTimezoneOverride", {"timezoneId": ""})
    await session.detach()


async def test_a_late_answer_about_an_older_form_is_not_signed(window: Window, registry: Registry) -> None:
    wallet, asked, may_end = InjectedWallet(OTHER.key), asyncio.Event(), asyncio.Event()

    async def delay(route: Route) -> None:
        if json.loads(route.request.post_data or "")["input"]["limit"] == "1":
            asked.set()
            await may_end.wait()
        await route.continue_()

    async with opened(window, wizard_of(registry, version="0.3.1-late"), wallet) as (page, watch):
        await expect(sign(page)).to_be_enabled()
        await page.route("**/triggers/sign-params", delay)
        limit = page.get_by_label("limit · uint256")
        await limit.fill("1")
        await asyncio.wait_for(asked.wait(), 60)
        await limit.fill("2")
        await expect(sign(page)).to_be_enabled()
        shown = await page.locator("#hash-digest").inner_text()
        async with page.expect_response(lambda each: '"1"' in (each.request.post_data or "")):
            may_end.set()
        await sign(page).click()
        await choose(page, wallet)
        await expect(page.locator("#proof .verdict")).to_contain_text("Yes.")
        assert shown in str(await page.locator("#proof").text_content())
        assert json.loads(sent(watch, "/triggers")[0].post_data or "")["typedData"]["values"]["input"]["limit"] == "2"


async def test_text_of_strangers_is_text_in_the_wizard(window: Window, registry: Registry) -> None:
    async with httpx2.AsyncClient(base_url=registry.url) as client:
        inputs = {"x": {"type": "string", "description": HOSTILE}, "y": {"type": "TokenAmount", "description": HOSTILE}}
        cid = await deploy(client, Bundle(HOSTILE[:90], "9.0.0", HOSTILE, inputs))
    async with opened(window, wizard_of(registry, functionCid=cid, input={"x": HOSTILE})) as (page, watch):
        await expect(page.get_by_label("x · string")).to_have_value(HOSTILE)
        assert await page.locator("#wizard").locator("script, img, b").count() == 0
        assert await page.locator("#wizard .unseen", has_text="U+202E").count() == 4
        await page.get_by_label("Chain").first.select_option("8453")
        await page.get_by_label("Token", exact=True).select_option("another …")
        await page.get_by_label("Address of the token").fill(CONTRACT.lower())
        await page.get_by_label("Address of the token").press("Tab")
        await expect(page.get_by_label("Address of the token")).to_have_value(CONTRACT)
        await page.get_by_label("Amount, in units of the token").fill("1.5")
        await expect(sign(page)).to_be_enabled()
        assert message(watch)["input"] == {
            "x": HOSTILE, "y": {"token": {"address": CONTRACT, "chainId": "8453"}, "amount": "1.5"}
        }  # fmt: skip
        assert await violations(page) == []


LINKS: dict[str, tuple[dict[str, Any], str]] = {
    "no object": ({"config": '"a"'}, "The link's config is no JSON object"),
    "no JSON": ({"input": "{"}, "The link's input is no JSON object"),
    "inexact number": ({"input": '{"chainId": 1, "limit": 9007199254740993}'}, "a whole number in decimal digits"),
    "unknown kind": ({"config": {"type": 9}}, "choose one"),
    "no schedule": ({"config": {"type": 0, "schedule": 7}}, "schedule has '\"7\"' as minute"),
    "six fields": ({"config": {"type": 0, "schedule": "0 0 0 * * *"}}, "a cron expression of five fields"),
    "no topics": ({"config": {"type": 1, "chainId": 1, "contract": CONTRACT, "topics": [5]}}, "nor an event in full"),
    "no time": ({"config": {"type": 2, "endDate": "soon"}}, "the link gives “soon”"),
    "no date": ({"config": {"type": 2, "endDate": -1}}, "the link gives “-1”"),
    "late date": ({"config": {"type": 2, "endDate": 8.64e15}}, "which does not fit here"),
    "no delay": ({"config": {"type": 2, "delta": "soon"}}, "a whole number above 0"),
    "too large": ({"input": {"chainId": 2**32, "limit": "1"}}, "out of the range of uint32"),
}  # fmt: skip


async def test_what_is_wrong_with_a_link_is_said(window: Window, registry: Registry) -> None:
    async with opened(window, "console") as (page, watch):
        for name, (given, words) in LINKS.items():
            await page.goto(wizard_of(registry, **given))
            await expect(page.locator("#wizard"), name).to_contain_text(words)
            if not name.startswith("no ") or "type" in str(given):
                await expect(page.locator("#wizard .fault:not(:empty)").first, name).to_be_visible()
                await expect(sign(page), name).to_be_disabled()
        assert sent(watch, "/triggers") == []
        watch.expect_refusals()


async def test_a_link_is_signed_to_the_letter(window: Window, registry: Registry) -> None:
    refill = {
        "chainId": 8453, "account": CONTRACT, "threshold": str(2**256 - 1), "memo": "  two\nlines ", "dry": True,
        "salt": "0x" + "aB" * 32,
    }  # fmt: skip
    config = {"type": 2, "startDate": 1_795_204_080_123, "delta": "3w", "endDate": 4_000_000_000_001}
    path = wizard_of(
        registry, functionCid=registry.world.cids["Refill"], input=refill, config=config, version="7.7.7",
        description="As the link says", executionFeeLimit="12", minValidations="3",
    )  # fmt: skip
    async with opened(window, path) as (page, watch):
        await expect(sign(page)).to_be_enabled()
        await expect(page.get_by_label("Description")).to_have_value("As the link says")
        assert message(watch) == {
            "functionCid": registry.world.cids["Refill"], "version": "7.7.7", "input": {**refill, "chainId": "8453"},
            "config": config, "executionFeeLimit": "12", "minValidations": 3,
        }  # fmt: skip


EVENTS = (
    "Transfer(address,address,uint)", "Transfer(address indexed from)", "Transfer((address)", "Transfer(bad)(address)",
    "Transfer(uint7)", "Transfer(,)", "Transfer", "0x12",
)  # fmt: skip


async def test_an_event_that_no_contract_logs_is_refused(window: Window, registry: Registry) -> None:
    config = {"type": 1, "chainId": 8453, "contract": CONTRACT, "topics": [["-"]]}
    async with opened(window, wizard_of(registry, config=config)) as (page, watch):
        for typed in EVENTS:
            async with page.expect_response("**/triggers/sign-params"):
                await page.get_by_label("Topic 0").fill("")
            await expect(field(page, "Topic 0").locator(".fault")).to_have_text("")
            sent_before = len(sent(watch, "/triggers/sign-params"))
            await page.get_by_label("Topic 0").fill(typed)
            await expect(field(page, "Topic 0").locator(".fault")).to_contain_text("nor an event in full types")
            assert len(sent(watch, "/triggers/sign-params")) == sent_before


async def test_events_are_hashed_as_contracts_log_them(window: Window, registry: Registry) -> None:
    event, other = "Done((address,uint256)[2],(bytes32,(string,bool)))", "0x" + "12" * 32
    config = {"type": 1, "chainId": 8453, "contract": CONTRACT}
    async with opened(window, wizard_of(registry, config=config)) as (page, watch):
        await page.get_by_label("Topic 0").fill(f"{event.replace(',', ', ')}, {other}")
        async with page.expect_request(lambda each: (each.post_data or "").count(other) == 2, timeout=60_000):
            await page.get_by_label("Topic 2").fill(other)
        digest = f"0x{keccak256(event.encode()).hex()}"
        await expect(field(page, "Topic 0")).to_contain_text(digest)
        await expect(page.locator(".preview")).to_contain_text(digest)
        assert message(watch)["config"]["topics"] == [[digest, other], [], [other]]


async def test_a_signature_by_somebody_else_is_not_sent(window: Window, registry: Registry) -> None:
    device = InjectedWallet(OTHER.key)
    async with opened(window, wizard_of(registry, version="0.3.1-stale")) as (page, watch):
        await page.get_by_text("Sign elsewhere").click()
        await expect(sign(page)).to_be_enabled()
        async with page.expect_download() as download:
            await page.get_by_role("button", name="Save typed-data.json").click()
        saved = Path(await (await download.value).path()).read_text("utf-8")
        await page.get_by_label("limit · uint256").fill("3")
        await expect(sign(page)).to_be_enabled()
        signature = device.result("eth_signTypedData_v4", [device.address, saved])
        await page.get_by_label("Signature", exact=True).fill(signature)
        use = page.get_by_role("button", name="Use this signature")
        await use.click()
        await expect(field(page, "Signer").locator(".fault")).to_contain_text("the address")
        await page.get_by_label("Signer", exact=True).fill(device.address)
        await use.click()
        await expect(page.locator(".elsewhere")).to_contain_text("Was the form changed after the file was saved?")
        await page.get_by_label("limit · uint256").fill("-")
        await expect(page.locator(".preview")).to_contain_text("missing or wrong")
        await expect(page.locator(".faults")).to_contain_text("limit · uint256: ")
        await use.click()
        await expect(page.locator(".elsewhere")).to_contain_text("There is nothing to sign yet")
        assert sent(watch, "/triggers") == []


async def test_a_consent_that_has_ended_says_what_to_change(window: Window, registry: Registry) -> None:
    ended = registry.world.triggers[1]
    given = {name: ended[name] for name in ("functionCid", "input", "config", "version", "executionFeeLimit")}
    wallet = InjectedWallet(OWNER.key)
    async with opened(window, wizard_of(registry, **given, description="Again"), wallet) as (page, watch):
        await sign(page).click()
        await choose(page, wallet)
        await expect(page.locator(".status")).to_contain_text("such as the version")
        await expect(page.get_by_label("Description")).to_have_value("Again")
        watch.expect_refusals()
    assert ok(httpx2.get(f"{registry.url}/triggers/{ended['sig']}")).json()["description"] == ended["description"]


async def test_a_consent_that_is_registered_already_is_said_to_be(window: Window, registry: Registry) -> None:
    ended = registry.world.triggers[1]
    given = {name: ended[name] for name in ("functionCid", "input", "config", "executionFeeLimit")}
    wallet = InjectedWallet(OWNER.key)
    for said in ("", "Already registered on"):
        address = wizard_of(registry, **given, version="7.7.7", description="Twice")
        async with opened(window, address, wallet) as (page, _):
            await sign(page).click()
            await choose(page, wallet)
            if said:
                await expect(page.locator(".status")).to_contain_text(said)
                await expect(page.get_by_label("Version of the trigger")).to_have_value("7.7.7")
            else:
                await page.wait_for_url("**/console/triggers/0x*")


async def test_only_the_owner_is_asked_to_end_a_trigger(window: Window, registry: Registry) -> None:
    sig = registry.world.triggers[-1]["sig"]
    wallet, device = InjectedWallet(OTHER.key), InjectedWallet(OTHER.key)
    async with opened(window, f"console/triggers/{sig}", wallet) as (page, watch):
        await page.get_by_role("button", name="Deactivate").click()
        await page.get_by_role("button", name="Sign the end in the wallet").click()
        await choose(page, wallet)
        await expect(page.get_by_role("dialog")).to_contain_text(f"Only {OWNER.address} can end this trigger")
        assert [each["method"] for each in wallet.asked] == ["eth_requestAccounts"]
        await page.get_by_text("Sign elsewhere").click()
        async with page.expect_download() as download:
            await page.get_by_role("button", name="Save typed-data.json").click()
        data = Path(await (await download.value).path()).read_text("utf-8")
        await page.get_by_label("Signature", exact=True).fill(device.result("eth_signTypedData_v4", ["", data]))
        await page.get_by_role("button", name="Use this signature").click()
        await expect(page.locator(".elsewhere")).to_contain_text(f"by {OTHER.address}, not by {OWNER.address}")
        assert sent(watch, "/triggers/deactivate") == []
    assert "deactivateSig" not in ok(httpx2.get(f"{registry.url}/triggers/{sig}")).json()


async def test_the_end_of_other_triggers_is_not_signed(window: Window, registry: Registry) -> None:
    sig, other = registry.world.triggers[-1]["sig"], registry.world.triggers[0]["sig"]
    wallet = InjectedWallet(OWNER.key)

    async def lie(route: Route) -> None:
        answer = await (await route.fetch()).json()
        answer["typedData"]["message"]["triggerSigs"].append(other)
        await route.fulfill(json=answer)

    async with opened(window, f"console/triggers/{sig}", wallet) as (page, watch):
        await page.route("**/triggers/deactivate/sign-params", lie)
        await page.get_by_role("button", name="Deactivate").click()
        await page.get_by_role("button", name="Sign the end in the wallet").click()
        await choose(page, wallet)
        await expect(page.get_by_role("dialog")).to_contain_text("something else to be signed")
        assert [each["method"] for each in wallet.asked] == ["eth_requestAccounts"]
        assert sent(watch, "/triggers/deactivate") == []


async def test_triggers_are_listed_by_their_times(window: Window, registry: Registry) -> None:
    middle = registry.world.triggers[3]["createdAt"][:-1]  # the fourth of six, as a field for times has it
    async with opened(window, "console/triggers") as (page, watch):
        await page.get_by_label("Until (UTC)").fill(middle)
        await page.get_by_role("button", name="Filter").click()
        await expect(page.locator("#rows tbody tr")).to_have_count(4)
        await page.get_by_label("After (UTC)").fill(registry.world.triggers[0]["createdAt"][:-1])
        await page.get_by_role("button", name="Filter").click()
        await expect(page.locator("#rows tbody tr")).to_have_count(3)
        await expect(page.get_by_label("Until (UTC)")).to_have_value(middle.rstrip("0").rstrip("."))
        followed = str(await page.locator("#rows").get_attribute("data-path")).partition("&cursor=")[0]
        assert len(httpx2.get(f"{registry.url}/{followed}").json()) == 3
        await page.goto("console/triggers?createdAfter=soon")
        await expect(page.locator("main")).to_contain_text("Give a date and a time in UTC, such as")
        watch.expect_refusals()
