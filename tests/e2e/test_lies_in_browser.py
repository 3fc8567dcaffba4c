"""A registry that lies to its own console: only what the reader sees is signed, and nothing forged passes."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from playwright.async_api import Route, expect

from browsing import Window
from builders import Wallet
from console_world import Registry
from injected_wallet import InjectedWallet, choose, opened, wizard_of

pytestmark = pytest.mark.asyncio(loop_scope="session")
KEY = Wallet(81).key


async def test_the_domain_has_the_type_that_was_hashed_here(window: Window, registry: Registry) -> None:
    """A registry that gives the domain another type would have the wallet sign something else."""

    async def lie(route: Route) -> None:
        answer = await (await route.fetch()).json()
        answer["types"]["EIP712Domain"] = [{"name": "name", "type": "string"}]
        await route.fulfill(json=answer)

    wallet = InjectedWallet(KEY)
    async with opened(window, "console", wallet) as (page, watch):
        await page.route("**/triggers/sign-params", lie)
        await page.goto(wizard_of(registry, version="0.3.2"))
        await page.get_by_role("button", name="Sign in the wallet").click()
        async with page.expect_request(f"{registry.url}/triggers"):
            await choose(page, wallet)
        await expect(page.locator(".status")).to_have_class("status bad")  # the registry refuses such types
        watch.expect_refusals()
    asked = json.loads(wallet.asked[-1]["params"][1])
    assert [each["name"] for each in asked["types"]["EIP712Domain"]] == ["name", "version"]


def _fee(data: dict[str, Any]) -> None:
    data["message"]["executionFeeLimit"] = "2000000000000000000"


def _domain(data: dict[str, Any]) -> None:
    """Another domain, and the right one as a member of the message."""
    data["message"]["domain"], data["domain"] = data["domain"], {"name": "Another Protocol - Registry", "version": "1"}
    data["types"]["Trigger"].append({"name": "domain", "type": "Domain"})
    data["types"]["Domain"] = [{"name": "name", "type": "string"}, {"name": "version", "type": "string"}]


def _member(data: dict[str, Any]) -> None:
    data["message"]["spender"] = Wallet(1).address
    data["types"]["Trigger"].append({"name": "spender", "type": "address"})


@pytest.mark.parametrize("change", [_fee, _domain, _member])
async def test_a_registry_that_wants_something_else_signed_is_caught(
    window: Window, registry: Registry, change: Callable[[dict[str, Any]], None]
) -> None:
    async def lie(route: Route) -> None:
        answer = await (await route.fetch()).json()
        change(answer)
        await route.fulfill(json=answer)

    async with opened(window, "console") as (page, _):
        await page.route("**/triggers/sign-params", lie)
        await page.goto(wizard_of(registry))
        await expect(page.locator(".preview")).to_contain_text("Do not sign")
        await expect(page.get_by_role("button", name="Sign in the wallet")).to_be_disabled()


async def test_a_forged_record_is_caught(window: Window, registry: Registry) -> None:
    sig = registry.world.triggers[2]["sig"]

    async def lie(route: Route) -> None:
        answer = await (await route.fetch()).json()
        await route.fulfill(json={**answer, "executionFeeLimit": "1"})

    async with opened(window, "console") as (page, _):
        await page.route(f"{registry.url}/triggers/{sig}", lie)
        await page.goto(f"console/triggers/{sig}")
        await expect(page.locator("#proof .verdict")).to_contain_text("No.")


@pytest.mark.parametrize("text", ["", "0x", "0x" + "ab" * 65, "Sign in to another site", "0x" + "ab" * 32 + "\n"])
async def test_nothing_but_a_nonce_is_signed_to_log_in(window: Window, text: str) -> None:
    """The signatures of triggers, with commas between, would be a consent to end them."""

    async def lie(route: Route) -> None:
        answer = await (await route.fetch()).json()
        await route.fulfill(json={**answer, "nonce": text})

    wallet = InjectedWallet(KEY)
    async with opened(window, "console/account", wallet) as (page, _):
        await page.route("**/users/nonce", lie)
        await page.get_by_role("button", name="Log in with a wallet").click()
        await choose(page, wallet)
        await expect(page.locator("#account")).to_contain_text("Nothing was signed")
        assert [each["method"] for each in wallet.asked] == ["eth_requestAccounts"]
