"""Every page in a real browser: accessible in both themes, within its budget, and calm."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.async_api import Browser

from browsing import overflow, shift, violations, watched
from builders import Wallet
from console_world import Registry

pytestmark = pytest.mark.asyncio(loop_scope="module")

PAGES: dict[str, Callable[[Registry], str]] = {
    "overview": lambda _: "console",
    "functions": lambda _: "console/functions",
    "function": lambda registry: f"console/functions/{registry.world.cids['Refill']}",
    "deploy": lambda _: "console/deploy",
    "triggers": lambda _: "console/triggers",
    "trigger": lambda registry: f"console/triggers/{registry.world.triggers[3]['sig']}",
    "deactivated": lambda registry: f"console/triggers/{registry.world.triggers[1]['sig']}",
    "hostile": lambda registry: f"console/triggers/{registry.world.triggers[-1]['sig']}",
    "wizard": lambda registry: f"console/triggers/new?functionCid={registry.world.cids['Refill']}",
    "intents": lambda _: "console/intents",
    "intent": lambda registry: f"console/intents/{registry.world.intents['failed'][-1]}",
    "address": lambda _: f"console/addresses/{Wallet(61).address}",
    "account": lambda _: "console/account",
    "service": lambda _: "console/service",
    "find": lambda _: "console/find?q=nothing",
    "refused": lambda _: "console/triggers/0x12",
    "unknown": lambda _: "console/nothing",
    "docs": lambda _: "docs",
    "error": lambda _: "errors/invalid-address",
}  # fmt: skip
KB = 1024


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("name", PAGES)
async def test_a_page_is_accessible(chromium: Browser, registry: Registry, name: str, theme: str) -> None:
    async with watched(chromium, registry.url, color_scheme=theme) as (context, watch):
        page = await context.new_page()
        await page.goto(PAGES[name](registry))
        await page.wait_for_load_state("networkidle") if name == "wizard" else None
        assert await violations(page) == []
        watch.expect_refusals()


@pytest.mark.parametrize("name", PAGES)
async def test_a_page_fits_a_phone_and_stands_still(chromium: Browser, registry: Registry, name: str) -> None:
    async with watched(chromium, registry.url, viewport={"width": 320, "height": 640}) as (context, watch):
        page = await context.new_page()
        await page.goto(PAGES[name](registry))
        await page.wait_for_timeout(150)
        assert await overflow(page) == []
        assert await shift(page) <= 0.02
        watch.expect_refusals()
