"""The reference in a browser: its examples name this registry, its index is filtered, and it sends requests."""

from __future__ import annotations

import json
import re

import pytest
from playwright.async_api import expect

from browsing import Window, overflow, violations, watched
from console_world import Registry

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_examples_name_the_registry_and_are_copied(window: Window, registry: Registry) -> None:
    async with watched(window) as (page, _):
        await window.context.grant_permissions(["clipboard-read", "clipboard-write"])
        await page.goto("docs#getTrigger")
        example = page.locator("#getTrigger .code").first
        await expect(example.locator("pre")).to_have_text(f"curl {registry.url}/triggers/{{sig}}")
        await example.get_by_role("button", name="Copy").click()
        assert await page.evaluate("navigator.clipboard.readText()") == f"curl {registry.url}/triggers/{{sig}}"
        await window.context.clear_permissions()


async def test_the_index_is_filtered(window: Window) -> None:
    async with watched(window) as (page, _):
        await page.goto("docs")
        index = page.get_by_role("navigation", name="Contents")
        box = page.get_by_role("searchbox", name="Filter the contents")
        await expect(index.get_by_role("link", name="POST /webhooks", exact=True)).to_be_visible()
        await box.fill("Nonce")
        await expect(index.get_by_role("link")).to_have_text(["POST /users/nonce"])
        await box.press("Enter")
        await expect(page).to_have_url(re.compile(r"/docs#requestNonce$"))
        await expect(page.locator(":target")).to_be_visible()
        await box.fill("")
        await expect(index.get_by_role("link", name="POST /webhooks", exact=True)).to_be_visible()


async def test_a_request_is_sent_from_the_page(window: Window, registry: Registry) -> None:
    async with watched(window) as (page, watch):
        await page.goto("docs#listTriggers")
        place = page.locator("#listTriggers .try")
        await place.get_by_label("limit (query)").fill("2")
        await place.get_by_role("button", name="Send").click()
        await expect(place.locator("strong")).to_have_text("200")
        assert len(json.loads(await place.locator("pre").inner_text())) == 2
        await page.goto("docs#getTrigger")
        place = page.locator("#getTrigger .try")
        sig = registry.world.triggers[-1]["sig"]
        await place.get_by_label("sig (path)").fill(f" {sig} ")
        await place.get_by_role("button", name="Send").click()
        await expect(place.locator("strong")).to_have_text("200")
        assert json.loads(await place.locator("pre").inner_text())["sig"] == sig
        assert "U+202E" in await place.locator("pre").inner_text()  # of a stranger's text, which it must not turn round
        assert await violations(page) == []
        await place.get_by_label("sig (path)").fill("0x12?x=<b>")
        await place.get_by_role("button", name="Send").click()
        await expect(place.locator("strong")).to_have_text("400")
        assert watch.requests[-1].url == f"{registry.url}/triggers/0x12%3Fx%3D%3Cb%3E"
        watch.expect_refusals()


async def test_a_credential_is_stored_nowhere(window: Window) -> None:
    async with watched(window) as (page, watch):
        await page.goto("docs#getApiKey")
        place = page.locator("#getApiKey .try")
        await place.get_by_label("x-auth-token, kept nowhere").fill("secret-word")
        await place.get_by_role("button", name="Send").click()
        await expect(place.locator("strong")).to_have_text("401")
        sent = next(each for each in reversed(watch.requests) if each.url.endswith("/users/api-key"))
        assert (await sent.all_headers())["x-auth-token"] == "secret-word"
        kept = await page.evaluate("JSON.stringify([{...localStorage}, {...sessionStorage}, document.cookie])")
        assert "secret-word" not in kept
        await page.goto("empty")
        await page.goto("docs#getApiKey")
        assert await place.get_by_label("x-auth-token, kept nowhere").input_value() == ""
        watch.expect_refusals()


@pytest.mark.long
async def test_the_reference_with_open_parts_fits_and_is_accessible(window: Window) -> None:
    async with watched(window) as (page, _):
        for width in (390, 768, 1280):
            await page.set_viewport_size({"width": width, "height": 800})
            await page.goto("docs")
            await page.evaluate("for (const each of document.querySelectorAll('main details')) each.open = true")
            assert await overflow(page) == [], width
            index = page.get_by_role("navigation", name="Contents")
            assert await index.evaluate("(each) => each.scrollWidth <= each.clientWidth"), width
            assert await violations(page) == [], width


async def test_what_changes_something_or_never_ends_is_not_sent(window: Window) -> None:
    async with watched(window) as (page, _):
        await page.goto("docs")
        paths = await page.locator(".try").evaluate_all("(all) => all.map((each) => each.dataset.path)")
        assert "/triggers" in paths
        assert "/events/stream" not in paths
        assert await page.locator("summary:has(b.post) + div .try").count() == 0
