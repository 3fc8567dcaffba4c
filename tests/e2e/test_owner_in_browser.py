"""Who reads, over pages; and the home of an owner, where what runs in the wallet's name is stopped."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import httpx2
import pytest
from playwright.async_api import Page, Route, expect

from answers import ok
from browsing import Window, overflow, shift, violations
from builders import Bundle, TriggerDraft, Wallet, cron, deploy, register
from console_world import HOSTILE, OWNERS, Registry
from injected_wallet import THRESHOLD, InjectedWallet, choose, opened, wizard_of

pytestmark = pytest.mark.asyncio(loop_scope="session")
OTHER = Wallet(82)
# The registry gave words at a log-in: a bare nonce is refused from then on, whoever reads.
WORDS = "muniment-words"


def short(wallet: InjectedWallet) -> str:
    """An address as the header has it."""
    return f"{wallet.address[:6]}…{wallet.address[-4:]}"


def methods(wallet: InjectedWallet) -> list[str]:
    return [each["method"] for each in wallet.asked]


async def connect(page: Page, wallet: InjectedWallet) -> None:
    await page.locator("#wallet").get_by_role("button", name=re.compile("Connect")).click()
    await choose(page, wallet)
    await expect(page.locator("#wallet summary")).to_be_visible()


async def switch(page: Page, wallet: InjectedWallet, address: str) -> None:
    """Let the owner choose another account in the wallet."""
    wallet.address = address
    await page.evaluate(f"testWallet0_emit('accountsChanged', ['{address.lower()}'])")


async def stored(page: Page) -> list[str]:
    """The names of all that the browser keeps for the registry."""
    return await page.evaluate("[...Object.keys(sessionStorage), ...Object.keys(localStorage)]")


async def owned_by(registry: Registry, wallet: Wallet, count: int) -> list[str]:
    """Register triggers of a wallet; their signatures."""
    async with httpx2.AsyncClient(base_url=registry.url) as client:
        drafts = [
            TriggerDraft(
                registry.world.cids["Sweep rewards"], wallet, description=f"Number {number} {HOSTILE}"[:200],
                version=f"9.{number}.0", config=cron(schedule="0 9 * * 1"),
            )
            for number in range(count)
        ]  # fmt: skip
        return [(await register(client, each))["sig"] for each in drafts]


async def test_the_wallet_stays_over_pages_and_is_asked_for_nothing(window: Window, registry: Registry) -> None:
    wallet, other = InjectedWallet(OTHER.key), InjectedWallet(OWNERS[0].key, "Other wallet")
    async with opened(window, "console/functions", other, wallet) as (page, _):
        header = page.locator("#wallet summary")
        await connect(page, wallet)
        await expect(header).to_contain_text(f"{short(wallet)} connected")
        await page.get_by_role("link", name="Intents", exact=True).click()
        await expect(page.get_by_role("heading", name="Intents")).to_be_visible()
        await expect(header).to_contain_text(f"{short(wallet)} connected")
        await page.goto(wizard_of(registry, version="0.3.1-stays"))
        await page.get_by_role("button", name="Sign in the wallet").click()
        await expect(page.locator("#proof .verdict")).to_contain_text("Yes.")
        assert methods(wallet)[0] == "eth_requestAccounts"
        assert set(methods(wallet)[1:]) == {"eth_accounts", "eth_signTypedData_v4"}
        assert other.asked == []


async def test_the_page_follows_the_wallet_from_account_to_account(window: Window) -> None:
    wallet, next_one = InjectedWallet(OWNERS[0].key), OWNERS[2].address
    async with opened(window, "console/account", wallet) as (page, _):
        await page.get_by_role("button", name="Connect a wallet").click()
        await choose(page, wallet)
        await expect(page).to_have_url(re.compile(f"address={wallet.address}$"))
        await expect(page.locator(".owned")).to_contain_text("Sweep rewards · every 6 hours")
        await switch(page, wallet, next_one)
        await expect(page).to_have_url(re.compile(f"address={next_one}$"))
        await expect(page.locator(".owned")).to_contain_text("Threshold")


async def test_a_wallet_that_has_taken_its_leave_is_forgotten(window: Window) -> None:
    wallet = InjectedWallet(OTHER.key)
    async with opened(window, "console/functions", wallet) as (page, _):
        await connect(page, wallet)
        await expect(page.locator("#wallet summary")).to_be_visible()
        wallet.is_allowed = False
        await page.reload()
        await expect(page.locator("#wallet").get_by_role("button", name="Connect wallet")).to_be_visible()
        assert await stored(page) == []


async def test_another_account_of_the_wallet_is_not_logged_in(window: Window) -> None:
    wallet = InjectedWallet(OTHER.key)
    async with opened(window, "console/account", wallet) as (page, _):
        await page.get_by_role("button", name="Log in with a wallet").click()
        await choose(page, wallet)
        await expect(page.locator("#wallet summary")).to_contain_text(f"{short(wallet)} logged in")
        await switch(page, wallet, OWNERS[0].address)
        await expect(page).to_have_url(re.compile(f"address={OWNERS[0].address}$"))
        await expect(page.locator("#wallet summary")).to_contain_text("connected")
        assert await stored(page) == ["muniment-wallet /", WORDS]


async def test_what_others_keep_on_this_host_stays_after_a_log_out(window: Window) -> None:
    wallet = InjectedWallet(OTHER.key)
    async with opened(window, "console/account", wallet) as (page, _):
        others = ["its page", "muniment-session /other/"]
        for name in others:
            await page.evaluate(f"sessionStorage.setItem('{name}', '1')")
        await page.evaluate("localStorage.setItem('muniment-of-somebody-else', '1')")
        await page.get_by_role("button", name="Log in with a wallet").click()
        await choose(page, wallet)
        await page.locator("#account").get_by_role("button", name="Log out").click()
        await expect(page.locator("#wallet summary")).to_have_count(0)
        assert sorted(await stored(page)) == sorted([*others, "muniment-of-somebody-else", WORDS])


async def test_a_page_that_the_browser_shows_again_is_loaded_anew(window: Window) -> None:
    async with opened(window, "console/account", InjectedWallet(OTHER.key)) as (page, _):
        await page.evaluate("document.title = 'as it was'")
        async with page.expect_navigation():
            await page.evaluate("dispatchEvent(new PageTransitionEvent('pageshow', { persisted: true }))")
        await expect(page).to_have_title(re.compile("^Account"))


async def test_a_log_in_that_expires_is_no_longer_shown(window: Window) -> None:
    wallet = InjectedWallet(OTHER.key)
    async with opened(window, "console/account", wallet) as (page, _):
        await page.get_by_role("button", name="Log in with a wallet").click()
        await choose(page, wallet)
        await expect(page.get_by_role("button", name="Show the key")).to_be_visible()
        await page.evaluate(
            """() => {
                 const kept = JSON.parse(sessionStorage.getItem("muniment-session /"));
                 sessionStorage.setItem("muniment-session /", JSON.stringify({ ...kept, until: Date.now() + 3000 }));
               }"""
        )
        await page.reload()
        await expect(page.locator("#wallet summary")).to_contain_text(f"{short(wallet)} connected")
        await expect(page.get_by_role("button", name="Show the key")).to_have_count(0)


async def test_nothing_but_keys_of_logs_and_that_words_were_given_stays_after_a_log_out(
    window: Window, registry: Registry
) -> None:
    wallet = InjectedWallet(OTHER.key)
    async with opened(window, wizard_of(registry), wallet) as (page, watch):
        await page.get_by_label("limit · uint256").fill("77")
        await page.goto(f"console/triggers/{registry.world.triggers[0]['sig']}")
        await expect(page.locator("#logged .verdict")).to_contain_text("Yes")
        await page.goto("console/account")
        await page.get_by_role("button", name="Log in with a wallet").click()
        await choose(page, wallet)
        await expect(page.get_by_text("Logged in as")).to_contain_text(wallet.address)
        assert len(await stored(page)) >= 4
        await page.locator("#wallet summary").click()
        await page.locator("#wallet").get_by_role("button", name="Log out").click()
        await expect(page.locator("#wallet").get_by_role("button", name="Connect wallet")).to_be_visible()
        assert sorted(each.partition(" ")[0] for each in await stored(page)) == ["log", WORDS]
        await expect(page.get_by_role("button", name="Log in with a wallet")).to_be_visible()
        watch.expect_refusals()


async def test_the_overview_leads_to_what_runs_in_the_name_of_the_wallet(window: Window) -> None:
    wallet = InjectedWallet(OWNERS[0].key)
    async with opened(window, "console", wallet) as (page, _):
        await connect(page, wallet)
        await expect(page).to_have_url(re.compile(f"console/account.address={wallet.address}$"))
        await expect(page.get_by_role("heading", name="Active triggers")).to_be_visible()
        await page.get_by_role("link", name="Account", exact=True).click()
        await expect(page).to_have_url(re.compile(f"console/account.address={wallet.address}$"))


async def test_without_a_wallet_the_ways_to_sign_are_said(window: Window, registry: Registry) -> None:
    async with opened(window, wizard_of(registry)) as (page, _):
        await page.locator("#wallet").get_by_role("button", name="Connect wallet").click()
        dialog = page.get_by_role("dialog")
        await expect(dialog).to_contain_text("No wallet was found in this browser.")
        await expect(dialog).to_contain_text("muniment triggers create")
        assert await violations(page) == []
        await dialog.get_by_role("button", name="Sign elsewhere").click()
        await expect(dialog).to_have_count(0)
        await expect(page.get_by_role("button", name="Save typed-data.json")).to_be_visible()
        await page.goto("console/functions")
        await page.locator("#wallet").get_by_role("button", name="Connect wallet").click()
        await expect(dialog.locator(".id")).to_contain_text("/console/functions")
        await expect(dialog.get_by_role("button", name="Sign elsewhere")).to_have_count(0)


async def test_one_trigger_is_stopped_by_the_keyboard(window: Window, registry: Registry) -> None:
    owner = Wallet(91)
    (sig,) = await owned_by(registry, owner, 1)
    wallet = InjectedWallet(owner.key)
    async with opened(window, f"console/account?address={owner.address}", wallet) as (page, _):
        await page.get_by_role("button", name="Stop", exact=True).focus()
        await page.keyboard.press("Enter")
        dialog = page.get_by_role("dialog", name="Stop this trigger for ever?")
        await expect(dialog).to_contain_text("Sweep rewards · on Mondays at 09:00")
        await expect(dialog).to_contain_text("the same consent can never be registered again")
        await expect(dialog.get_by_role("button", name="Cancel")).to_be_focused()
        await page.keyboard.press("Enter")
        await expect(dialog).to_have_count(0)
        await expect(page.get_by_role("button", name="Stop", exact=True)).to_be_focused()
        await page.keyboard.press("Enter")
        await page.keyboard.press("Tab")
        await page.keyboard.press("Enter")
        await choose(page, wallet)
        await expect(page.get_by_role("dialog", name="It has stopped")).to_be_visible()
        async with page.expect_download() as download:
            await page.get_by_role("button", name="Save deactivation.json").click()
        saved = json.loads(Path(await (await download.value).path()).read_text("utf-8"))
        assert saved["triggerSigs"] == [sig]
        await page.get_by_role("button", name="Close").click()
        await expect(page.get_by_text("Nothing runs in the name of this address.")).to_be_visible()
    assert ok(httpx2.get(f"{registry.url}/triggers/{sig}")).json()["deactivateSig"] == saved["signature"]


async def test_a_trigger_offers_its_end_to_its_owner_alone(window: Window, registry: Registry) -> None:
    sig = registry.world.triggers[0]["sig"]
    wallet = InjectedWallet(OTHER.key)
    async with opened(window, f"console/triggers/{sig}", wallet) as (page, _):
        end = page.get_by_role("button", name="Deactivate")
        await expect(end).to_be_visible()
        await connect(page, wallet)
        await expect(end).to_have_count(0)
        await page.reload()
        await expect(end).to_have_count(0)
        await switch(page, wallet, OWNERS[0].address)
        await expect(end).to_be_visible()


async def test_several_are_stopped_by_one_signature(window: Window, registry: Registry) -> None:
    owner = Wallet(92)
    sigs = await owned_by(registry, owner, 3)
    wallet = InjectedWallet(owner.key)
    async with opened(window, f"console/account?address={owner.address}", wallet) as (page, _):
        await expect(page.get_by_role("button", name="Stop the chosen")).to_be_disabled()
        await page.get_by_label("All", exact=True).check()
        await expect(page.get_by_role("button", name="Stop 3 chosen")).to_be_enabled()
        await page.locator(f'[data-sig="{sigs[1]}"]').get_by_role("checkbox").uncheck()
        await page.get_by_role("button", name="Stop 2 chosen").click()
        dialog = page.get_by_role("dialog", name="Stop these 2 triggers for ever?")
        await expect(dialog.locator(".ends li")).to_have_count(2)
        assert await violations(page) == []
        await dialog.get_by_role("button", name="Sign the end in the wallet").click()
        await choose(page, wallet)
        await page.get_by_role("dialog", name="2 triggers have stopped").get_by_role("button", name="Close").click()
        await expect(page.locator(".owned li")).to_have_count(1)
        assert methods(wallet).count("eth_signTypedData_v4") == 1
    active = ok(httpx2.get(f"{registry.url}/triggers?signer={owner.address}&active=true")).json()
    assert [each["sig"] for each in active] == [sigs[1]]


@pytest.mark.long
async def test_one_among_a_thousand_is_found_by_its_function_and_stopped_on_a_phone(
    window: Window, registry: Registry
) -> None:
    owner = Wallet(94)
    async with httpx2.AsyncClient(base_url=registry.url) as client:
        members = {"chainId": "uint32", "limit": "uint256"}
        asked = TriggerDraft(registry.world.cids["Threshold"], owner, inputs=members, input=THRESHOLD)
        wanted = await register(client, asked)
    await owned_by(registry, owner, 1_000)
    wallet = InjectedWallet(owner.key)
    async with opened(window, "console", wallet) as (page, _):
        await page.set_viewport_size({"width": 390, "height": 844})
        await connect(page, wallet)
        await expect(page.locator(".owned")).not_to_contain_text("Threshold")
        await page.get_by_role("combobox", name="Function").select_option(label="Threshold 0.3.1")
        await page.get_by_role("button", name="Show", exact=True).click()
        await expect(page.locator(".owned li")).to_have_count(1)
        assert await violations(page) == []
        await page.get_by_role("button", name="Stop", exact=True).click()
        await page.get_by_role("button", name="Sign the end in the wallet").click()
        await page.get_by_role("dialog", name="It has stopped").get_by_role("button", name="Close").click()
        await expect(page.get_by_text("Nothing of this function runs")).to_be_visible()
        await page.set_viewport_size({"width": 1280, "height": 720})
    assert ok(httpx2.get(f"{registry.url}/triggers/{wanted['sig']}")).json()["deactivateSig"]


async def test_nothing_is_stopped_for_another_or_by_a_registry_that_lies(window: Window, registry: Registry) -> None:
    owner, wallet = Wallet(93), InjectedWallet(OTHER.key)
    (sig,) = await owned_by(registry, owner, 1)
    path = f"console/account?address={owner.address}"

    async def lie(route: Route) -> None:
        answer: dict[str, Any] = await (await route.fetch()).json()
        answer["typedData"]["message"]["triggerSigs"].append(registry.world.triggers[0]["sig"])
        await route.fulfill(json=answer)

    async with opened(window, path, wallet) as (page, watch):
        stop = page.get_by_role("button", name="Stop", exact=True)
        await stop.click()
        await page.get_by_role("button", name="Sign the end in the wallet").click()
        await choose(page, wallet)
        await expect(page.get_by_role("dialog")).to_contain_text(f"Only {owner.address} can end this trigger")
        await page.get_by_role("button", name="Cancel").click()
        await expect(page.locator(".who")).to_contain_text("This is not the account that is connected")
        assert methods(wallet) == ["eth_requestAccounts"]
        await page.locator("#wallet summary").click()
        await page.locator("#wallet").get_by_role("button", name="Disconnect").click()
        wallet.address, wallet.key = owner.address, owner.key
        await page.route("**/triggers/deactivate/sign-params", lie)
        await stop.click()
        await page.get_by_role("button", name="Sign the end in the wallet").click()
        await choose(page, wallet)
        await expect(page.get_by_role("dialog")).to_contain_text("something else to be signed")
        assert "eth_signTypedData_v4" not in methods(wallet)
        assert [each for each in watch.requests if each.method == "POST" and each.url.endswith("/deactivate")] == []
    assert "deactivateSig" not in ok(httpx2.get(f"{registry.url}/triggers/{sig}")).json()


@pytest.mark.parametrize("width", [320, 390, 768, 1280, 2560])
async def test_the_home_of_an_owner_fits_and_stands_still(window: Window, registry: Registry, width: int) -> None:
    owner = Wallet(10_000 + width)
    await owned_by(registry, owner, 2)
    async with httpx2.AsyncClient(base_url=registry.url) as client:
        await register(client, TriggerDraft(await deploy(client, Bundle("W" * 100)), owner, description="notes " * 160))
    wallet = InjectedWallet(owner.key)
    async with opened(window, "console/functions", wallet) as (page, _):
        await page.set_viewport_size({"width": width, "height": 800})
        await connect(page, wallet)
        await page.goto(f"console/account?address={owner.address}")
        await expect(page.locator("#wallet summary")).to_be_visible()
        await expect(page.get_by_role("button", name="Log in with a wallet")).to_be_visible()
        assert await overflow(page) == []
        assert await shift(page) <= 0.02
        assert await violations(page) == []
        heights = await page.evaluate("[...document.querySelectorAll('.owned li')].map((each) => each.offsetHeight)")
        # A name of a hundred letters stands whole, and a note of a thousand is clipped.
        assert max(heights) <= (280 if width < 704 else 170)
        await page.set_viewport_size({"width": 1280, "height": 720})
