"""A page says whether its record is in the transparency log, and believes no proof that it has not checked."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable

import httpx2
import pytest
from playwright.async_api import Page, Route, expect

from answers import ok
from browsing import Window, watched
from console_world import Registry

pytestmark = pytest.mark.asyncio(loop_scope="session")
YES = re.compile(
    r"^Yes\. It is at index \d+ of \d+ entries in the log registry\.example/log/1, "
    r"which was signed at 20.* checked here\.$"
)


async def logged(page: Page, path: str) -> None:
    """Wait until the log has the record of a page: it began a second ago, and a page asks for eight seconds."""
    verdict = page.locator("#logged .verdict")
    async with asyncio.timeout(120):
        while True:
            await page.goto(path)
            await expect(verdict).to_have_text(re.compile(r"^(Yes|No)\b|^Not yet"))
            if not (await verdict.inner_text()).startswith("Not yet"):
                break
    await expect(verdict).to_have_text(YES)


async def test_a_trigger_and_a_function_are_proved(window: Window, registry: Registry) -> None:
    async with watched(window) as (page, _):
        await logged(page, f"console/triggers/{registry.world.triggers[0]['sig']}")
        await expect(page.locator("#logged")).to_have_class("check yes")
        await logged(page, f"console/functions/{registry.world.cids['Refill']}")


async def test_the_end_of_a_trigger_is_proved(window: Window, registry: Registry) -> None:
    found = await asyncio.to_thread(httpx2.get, f"{registry.url}/triggers?active=false&limit=100")
    sig = next(each["sig"] for each in ok(found).json() if "deactivateSig" in each)
    async with watched(window) as (page, _):
        await logged(page, f"console/triggers/{sig}")
        await expect(page.locator("#logged-end h2")).to_have_text("Is its end in the transparency log?")
        await expect(page.locator("#logged-end .verdict")).to_have_text(YES)
        await page.route("**/deactivations/0x*", changed('"createdAt":"202', '"createdAt":"203'))
        await page.goto(f"console/triggers/{sig}")
        await expect(page.locator("#logged-end .verdict")).to_contain_text("No. the log does not have this record")
        await expect(page.locator("#logged .verdict")).to_have_text(YES)


async def test_a_second_entry_of_a_record_is_told(window: Window, registry: Registry) -> None:
    async with watched(window) as (page, _):
        path = f"console/triggers/{registry.world.triggers[0]['sig']}"
        await logged(page, path)
        await logged(page, path)
        seen = await page.evaluate("""() => {
            const [name] = Object.keys(localStorage).filter((each) => each.startsWith("logged "));
            const index = localStorage.getItem(name);
            localStorage.setItem(name, "123456");
            return index;
        }""")
        await page.goto(path)
        words = f"No. The log has two entries of this record, at the indexes 123456 and {seen}"
        await expect(page.locator("#logged .verdict")).to_contain_text(words)
        await expect(page.locator("#logged")).to_have_class("check no")


Change = Callable[[Route], Awaitable[None]]


def changed(old: str, new: str) -> Change:
    async def lie(route: Route) -> None:
        response = await route.fetch()
        text = await response.text()
        assert re.search(old, text)
        await route.fulfill(response=response, body=re.sub(old, new, text, count=1))

    return lie


LIES = {
    "a record": (
        re.compile(r":\d+/triggers/0x[0-9a-f]+$"),
        changed('"description":"', '"description":"x'),
        "does not have this record",
    ),
    "an index": ("**/proof", changed(r"\nindex \d+\n", "\nindex 1\n"), "does not have this record|too"),
    "a size": ("**/proof", changed(r"/log/1\n\d+\n", "/log/1\n9999\n"), "too few|does not have"),
    "a time": ("**/proof", changed(r"\S{20}==\n$", "A" * 20 + "==\n"), "has not signed"),
    "a key": ("**/log", changed(r"\+[0-9a-f]{8}\+", "+00000000+"), "has other keys"),
    "no log": ("**/log", changed('"origin":"', '"origin":"x'), "does not name the log"),
    "no proof": ("**/proof", changed(r"[\s\S]+", "nothing"), "this is no proof"),
}


async def test_no_lie_about_the_log_is_believed(window: Window, registry: Registry) -> None:
    path = f"console/triggers/{registry.world.triggers[0]['sig']}"
    async with watched(window) as (page, _):
        await logged(page, path)
        for lie, (pattern, change, words) in LIES.items():
            await page.route(pattern, change)
            await page.goto(path)
            await expect(page.locator("#logged .verdict"), lie).to_have_text(re.compile(f"^No\\. .*({words})"))
            await expect(page.locator("#logged"), lie).to_have_class("check no")
            await page.unroute(pattern, change)
        await logged(page, path)


async def test_another_key_than_before_is_told(window: Window, registry: Registry) -> None:
    path = f"console/triggers/{registry.world.triggers[0]['sig']}"
    async with watched(window) as (page, _):
        await logged(page, path)
        await page.evaluate("for (const key of Object.keys(localStorage)) localStorage.setItem(key, 'another')")
        await page.goto(path)
        await expect(page.locator("#logged .verdict")).to_contain_text("other keys than this browser has seen before")
