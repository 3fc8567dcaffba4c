"""What people do with the console, in a real browser with a wallet."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import httpx2
import pytest
from playwright.async_api import Route, expect

from answers import ok
from browsing import Window, violations
from builders import Bundle, Wallet
from console_world import HOSTILE, Registry
from injected_wallet import InjectedWallet, choose, opened, wizard_of
from muniment.protocol.evm.sign_in import read_sign_in

pytestmark = pytest.mark.asyncio(loop_scope="session")
KEY, OTHER = Wallet(81).key, Wallet(82).key


KINDS = {
    "schedule": {"type": 0, "schedule": "15 4 * * 2", "delta": "20m", "endDate": 0},
    "event": {
        "type": 1, "chainId": "8453", "contract": Wallet(99).address, "topics": [["Transfer(address,address,uint256)"]],
        "delta": "1h", "endDate": 0,
    },
    "once": {"type": 2, "startDate": 0, "delta": "2d", "endDate": 4_000_000_000_000},
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
async def test_a_trigger_is_signed_checked_and_ended(window: Window, registry: Registry, kind: str) -> None:
    wallet = InjectedWallet(KEY)
    path = wizard_of(registry, config=KINDS[kind], description=f"By {kind} {HOSTILE}"[:200], version=f"0.3.1-{kind}")
    async with opened(window, path, wallet) as (page, _):
        sign = page.get_by_role("button", name="Sign in the wallet")
        await expect(sign).to_be_enabled()
        shown = await page.locator("#hash-digest").inner_text()
        await sign.click()
        await choose(page, wallet)
        await expect(page.locator("#proof .verdict")).to_contain_text("Yes.")
        await page.get_by_text("Signature checked here").click()
        assert shown in await page.locator("#proof").inner_text()
        assert await violations(page) == []
        sig = page.url.rpartition("/")[2]
        record = ok(httpx2.get(f"{registry.url}/triggers/{sig}")).json()
        assert (record["signer"], record["config"]["type"]) == (wallet.address, list(KINDS).index(kind))
        asked = json.loads(wallet.given("eth_signTypedData_v4")[1])
        assert [each["name"] for each in asked["types"]["EIP712Domain"]] == ["name", "version"]
        if kind == "event":  # Keccak-256 of the event, as every Ethereum tool has it
            assert record["config"]["topics"] == [
                ["0xddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef"]
            ]
        await page.get_by_role("button", name="Deactivate").click()
        await expect(page.get_by_role("dialog")).to_contain_text("the same consent can never be registered again")
        assert await violations(page) == []
        await page.get_by_role("button", name="Sign the end in the wallet").click()
        await page.get_by_role("button", name="Close").click()
        await expect(page.get_by_text("Checked here:")).to_be_visible()
        assert "deactivateSig" in ok(httpx2.get(f"{registry.url}/triggers/{sig}")).json()


REFUSALS: dict[str, tuple[dict[str, Any], str]] = {
    "rejects": ({"mode": "rejects"}, "refused"),
    "pending": ({"mode": "pending"}, "earlier question"),
    "unauthorised": ({"mode": "unauthorised"}, "Connect it again"),
    "empty domain": ({"mode": "empty domain"}, "without the domain"),
    "contract": ({"mode": "contract"}, "contract"),
    "another account": ({"signing_key": OTHER}, "not by"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSALS)
async def test_a_wallet_that_does_not_sign_sends_nothing(window: Window, registry: Registry, name: str) -> None:
    given, words = REFUSALS[name]
    wallet = InjectedWallet(KEY, **given)
    path = wizard_of(registry, version=f"0.3.1-{name.replace(' ', '-')}")
    async with opened(window, path, wallet) as (page, watch):
        await page.get_by_role("button", name="Sign in the wallet").click()
        await choose(page, wallet)
        await expect(page.locator(".status")).to_contain_text(words)
        assert [each for each in watch.requests if each.method == "POST" and each.url.endswith("/triggers")] == []
    query = f"signer={wallet.address}&functionCid={registry.world.cids['Threshold']}&active=true"
    assert ok(httpx2.get(f"{registry.url}/triggers?{query}")).json() == []


async def test_wallets_announce_themselves_late_and_one_is_chosen(window: Window) -> None:
    late, other = InjectedWallet(KEY, "Late wallet", late_ms=700), InjectedWallet(OTHER, "Other wallet")
    async with opened(window, "console/runs", late, other) as (page, _):
        await page.get_by_role("button", name="Connect wallet").click()
        await expect(page.get_by_role("dialog").get_by_role("button", name="Other wallet")).to_be_visible()
        await choose(page, late)
        await expect(page.locator("#wallet summary")).to_contain_text(f"{late.address[:6]}…{late.address[-4:]}")
        assert other.asked == []
        await page.evaluate(f"testWallet0_emit('accountsChanged', ['{other.address}'])")
        await expect(page.locator("#wallet summary")).to_contain_text(f"{other.address[:6]}…{other.address[-4:]}")
        await page.evaluate("testWallet0_emit('accountsChanged', [])")
        await expect(page.get_by_role("button", name="Connect wallet")).to_be_visible()


async def test_a_trigger_is_signed_elsewhere(window: Window, registry: Registry) -> None:
    path = wizard_of(registry, version="0.3.1-elsewhere")
    async with opened(window, path) as (page, _):
        await expect(page.get_by_role("button", name="Sign in the wallet")).to_be_enabled()
        await page.get_by_text("Sign elsewhere").click()
        async with page.expect_download() as download:
            await page.get_by_role("button", name="Save typed-data.json").click()
        data = json.loads(Path(await (await download.value).path()).read_text("utf-8"))
        device = InjectedWallet(OTHER)
        signature = device.result("eth_signTypedData_v4", [device.address, json.dumps(data)])
        box = page.get_by_label("Signature", exact=True)
        await page.get_by_label("Signer", exact=True).fill(device.address)
        await box.fill("0x12")
        await page.get_by_role("button", name="Use this signature").click()
        await expect(page.locator(".elsewhere")).to_contain_text("65 bytes")
        await box.fill(signature)
        await page.get_by_role("button", name="Use this signature").click()
        await expect(page.locator("#proof .verdict")).to_contain_text(f"is by {device.address}")


async def test_what_is_wrong_is_said_at_its_field_and_kept(window: Window, registry: Registry) -> None:
    async with opened(window, wizard_of(registry)) as (page, watch):
        limit = page.get_by_label("limit · uint256")
        await limit.fill("1.5e18")
        await expect(page.locator("#hash-digest")).to_be_visible()
        await expect(page.locator(".field", has=limit)).to_contain_text("= 1.5 × 10¹⁸")
        await limit.fill("-1")
        await expect(page.locator(".field", has=limit)).to_contain_text("out of the range of uint256")
        await expect(page.get_by_role("button", name="Sign in the wallet")).to_be_disabled()
        await limit.fill("77")
        hour = page.get_by_label("Hour")
        await hour.fill("99")
        await expect(page.locator(".five")).to_contain_text(re.compile("hour|99|schedule", re.IGNORECASE))
        await hour.fill("3")
        await expect(page.get_by_role("button", name="Sign in the wallet")).to_be_enabled()
        await page.reload()
        await expect(page.get_by_label("limit · uint256")).to_have_value("77")
        await expect(page.get_by_label("Hour")).to_have_value("3")
        watch.expect_refusals()


async def test_the_content_of_a_function_is_checked(window: Window, registry: Registry) -> None:
    cid = registry.world.cids["Refill"]
    async with opened(window, f"console/functions/{cid}") as (page, _):
        await page.get_by_role("button", name="Check").click()
        await expect(page.locator("#check .verdict")).to_contain_text("Yes. 3 blocks")

        async def damage(route: Route) -> None:
            body = bytearray(await (await route.fetch()).body())
            body[-1] ^= 1
            await route.fulfill(body=bytes(body), content_type="application/vnd.ipld.car")

        await page.route("**/ipfs/**", damage)
        await page.get_by_role("button", name="Check").click()
        await expect(page.locator("#check .verdict")).to_contain_text("No.")
        assert await violations(page) == []


async def test_a_function_is_deployed(window: Window, registry: Registry, tmp_path: Path) -> None:
    bundle, wallet = Bundle("From a browser", "1.0.0", "Deployed by hand"), InjectedWallet(KEY)
    (tmp_path / "manifest.json").write_bytes(bundle.manifest)
    (tmp_path / "function.wasm").write_bytes(bundle.wasm)
    async with opened(window, "console/deploy", wallet) as (page, _):
        await page.get_by_label("Choose or drop both files").set_input_files([tmp_path / "manifest.json"])
        await expect(page.get_by_text("choose function.wasm")).to_be_visible()
        await page.get_by_label("Choose or drop both files").set_input_files([tmp_path / "function.wasm"])
        cid = (await page.locator("#cid").inner_text()).split()[0]
        await page.get_by_role("button", name="Log in and deploy").click()
        await choose(page, wallet)
        await expect(page.get_by_text("The registry computed the same CID")).to_be_visible()
        sign = await page.get_by_role("link", name="Sign a trigger").get_attribute("href")
        assert str(sign).endswith(f"/console/triggers/new?functionCid={cid}")
        assert ok(httpx2.get(f"{registry.url}/functions/{cid}")).json()["name"] == "From a browser"
        kept = await page.evaluate("JSON.stringify({ ...sessionStorage, ...localStorage })")
        assert "mnk_" not in kept
        await page.reload()
        files = [tmp_path / "manifest.json", tmp_path / "function.wasm"]
        await page.get_by_label("Choose or drop both files").set_input_files(files)
        await expect(page.get_by_text("is here already")).to_be_visible()


async def test_the_account_is_used_after_a_log_in(window: Window) -> None:
    wallet = InjectedWallet(OTHER)
    async with opened(window, "console/account", wallet) as (page, watch):
        await page.get_by_role("button", name="Log in with a wallet").click()
        await choose(page, wallet)
        await expect(page.get_by_text("Logged in as")).to_contain_text(wallet.address)
        login = next(each for each in watch.requests if each.url.endswith("/users/authenticate"))
        assert json.loads(login.post_data or "")["lifetimeSeconds"] == 3600
        await page.get_by_role("button", name="Show the key").click()
        await expect(page.get_by_text(re.compile("mnk_"))).to_be_visible()
        await page.get_by_label("Name").fill("Ada")
        await page.get_by_role("button", name="Keep").click()
        await expect(page.get_by_text("Kept.")).to_be_visible()
        assert await violations(page) == []
        await page.reload()
        await expect(page.get_by_label("Name")).to_have_value("Ada")
        await page.get_by_role("button", name="Log out").click()
        await expect(page.get_by_role("button", name="Log in with a wallet")).to_be_visible()
        assert await page.evaluate("sessionStorage.length") == 0


async def test_a_log_in_names_the_registry(window: Window, registry: Registry) -> None:
    wallet = InjectedWallet(Wallet(84).key)
    async with opened(window, "console/account", wallet) as (page, watch):
        await page.get_by_role("button", name="Log in with a wallet").click()
        await choose(page, wallet)
        await expect(page.get_by_text("Logged in as")).to_contain_text(wallet.address)
        login = next(each for each in watch.requests if each.url.endswith("/users/authenticate"))
        said = read_sign_in(json.loads(login.post_data or "")["message"])
        domain = registry.url.partition("//")[2]
        assert (said.domain, said.uri, said.address) == (domain, registry.url, wallet.address)


async def test_a_log_in_at_another_registry_is_not_signed(window: Window) -> None:
    wallet = InjectedWallet(Wallet(85).key)

    async def name(route: Route) -> None:
        response = await route.fetch()
        other = {**await response.json(), "publicUrl": "https://registry.example.org"}
        await route.fulfill(response=response, json=other)

    async with opened(window, "console/account", wallet) as (page, _):
        await page.route("**/users/nonce", name)
        await page.get_by_role("button", name="Log in with a wallet").click()
        await choose(page, wallet)
        await expect(page.get_by_text("Nothing was signed")).to_be_visible()
        assert [each for each in wallet.asked if each["method"] == "personal_sign"] == []


async def test_a_registry_that_gave_words_gets_no_signature_of_a_bare_nonce(window: Window) -> None:
    wallet = InjectedWallet(Wallet(86).key)

    async def leave_out(route: Route) -> None:
        response = await route.fetch()
        members = await response.json()
        del members["publicUrl"]
        await route.fulfill(response=response, json=members)

    async with opened(window, "console/account", wallet) as (page, _):
        await page.get_by_role("button", name="Log in with a wallet").click()
        await choose(page, wallet)
        await expect(page.get_by_text("Logged in as")).to_be_visible()
        await page.get_by_role("button", name="Log out").click()
        asked = len(wallet.asked)
        await page.route("**/users/nonce", leave_out)
        await page.get_by_role("button", name="Log in with a wallet").click()
        await choose(page, wallet)
        await expect(page.get_by_text("gave a text with its name before. Nothing was signed")).to_be_visible()
        assert [each for each in wallet.asked[asked:] if each["method"] == "personal_sign"] == []


async def test_newer_rows_are_told_and_never_moved(window: Window, registry: Registry) -> None:
    wallet = InjectedWallet(Wallet(83).key)
    async with opened(window, "console/triggers", wallet) as (page, _):
        before = await page.locator("#rows tbody tr").count()
        async with await window.context.new_page() as signing:
            await signing.goto(wizard_of(registry, version="0.3.1-newer"))
            await signing.get_by_role("button", name="Sign in the wallet").click()
            await choose(signing, wallet)
            await expect(signing.locator("#proof .verdict")).to_contain_text("Yes.")
        show = page.get_by_role("button", name="1 new, show")
        await expect(show).to_be_visible()
        assert await page.locator("#rows tbody tr").count() == before
        await show.click()
        await expect(page.locator("#rows tbody tr")).to_have_count(before + 1)


async def test_the_keyboard_alone_finds_a_trigger(window: Window, registry: Registry) -> None:
    sig = registry.world.triggers[0]["sig"]
    async with opened(window, "console") as (page, _):
        await page.keyboard.press("/")
        await page.keyboard.type(f"https://elsewhere.example/console/triggers/{sig}?x=1")
        await page.keyboard.press("Enter")
        await expect(page).to_have_url(re.compile(f"console/triggers/{sig}$"))


async def test_a_row_is_one_link_and_links_in_it_stay_their_own(window: Window) -> None:
    async with opened(window, "console/triggers") as (page, _):
        second = page.locator("#rows tbody tr").nth(1)
        href = await second.locator("a.row").get_attribute("href")
        box = await second.locator("td").last.bounding_box()
        assert box
        await page.mouse.click(box["x"] + box["width"] - 2, box["y"] + box["height"] - 2)
        await expect(page).to_have_url(re.compile(f"{(href or '').removeprefix('../')}$"))
        await page.go_back()
        await second.get_by_role("button").first.click(trial=True)  # nothing is above it
        await second.locator("td[data-name=Signer] a").click()
        await expect(page).to_have_url(re.compile("console/addresses/0x"))
