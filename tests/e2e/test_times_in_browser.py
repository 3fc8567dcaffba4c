"""Times stay true while a page is open, and are shown in the zone that the reader has chosen."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, expect

from browsing import Window, watched, window_of
from console_world import Registry

pytestmark = pytest.mark.asyncio(loop_scope="session")
# Five and three quarter hours from UTC, all year: a difference that no other zone has.
ZONE = "Asia/Kathmandu"


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def window(chromium: Browser, registry: Registry) -> AsyncIterator[Window]:
    async with window_of(chromium, registry.url, timezone_id=ZONE) as made:
        yield made


async def times(page: Page) -> list[tuple[str, str, str]]:
    """The form, the text and the title of each time."""
    found = await page.locator("time[datetime]").evaluate_all(
        "(all) => all.map((each) => [each.dataset.as ?? 'ago', each.textContent, each.title])"
    )
    return [tuple(each) for each in found]


PAGES = ("console", "console/triggers/{trigger}", "console/intents/{intent}")


async def test_a_script_says_times_as_the_registry_does(window: Window, registry: Registry) -> None:
    places = {"trigger": registry.world.triggers[2]["sig"], "intent": registry.world.intents["failed"][-1]}
    seen = set[str]()
    async with watched(window) as (page, _):
        for path in PAGES:
            await page.route("**/times.js", lambda route: route.fulfill(content_type="text/javascript", body=""))
            await page.goto(path.format(**places))
            written = await times(page)
            await page.unroute_all()
            await page.goto(path.format(**places))
            await page.get_by_role("button", name="Show local times").click()
            local = await times(page)
            await page.get_by_role("button", name="Show times in UTC").click()
            again = await times(page)
            assert [without_ages(each) for each in again] == [without_ages(each) for each in written]
            assert len(local) == len(written)
            for (form, was, _), (_, now, _) in zip(written, local, strict=True):
                assert form == "ago" or was != now, (form, was)
            seen |= {form for form, _, _ in written}
    assert seen == {"ago", "dated", "second", "exact", "clock"}


def without_ages(time: tuple[str, str, str]) -> tuple[str, str, str]:
    """Ages without their numbers: some seconds pass between two looks, and 119 minutes may become 2 hours."""
    age = r"(in )?([0-9,]+ (second|minute)s?|\b2 hours)( ago)?|\bnow\b"
    form, text, title = (re.sub(age, "an age", each) for each in time)
    return form, text, title


async def test_the_zone_stays(window: Window, registry: Registry) -> None:
    async with watched(window) as (page, _):
        path = f"console/triggers/{registry.world.triggers[2]['sig']}"
        await page.goto(path)
        run = page.locator("time[data-as=dated]").first
        await expect(run).to_have_text(
            re.compile(r"^1 [A-Z][a-z]{2} \d{4}, 09:30 UTC \(in \d+ (days|hours|minutes)\)$")
        )
        await page.get_by_role("button", name="Show local times").click()
        words = re.compile(r"^1 [A-Z][a-z]{2} \d{4}, 15:15 GMT\+5:45 \(in \d+ (days|hours|minutes)\)$")
        await expect(run).to_have_text(words)
        await expect(page.locator("footer")).to_contain_text("Times are local (GMT+5:45).")
        await page.goto(path)
        await expect(run).to_have_text(words)
        await page.get_by_role("button", name="Show times in UTC").click()
        await page.goto(path)
        await expect(page.locator("footer")).to_contain_text("Times are UTC.")
        assert await page.evaluate("localStorage.getItem('times')") is None


# As if a page had come back from the history after all its times had passed.
PASSED = """() => {
  for (const each of document.querySelectorAll("[data-until]")) each.dataset.until = "2020-01-01T00:00:00Z";
  dispatchEvent(new Event("pageshow"));
}"""


async def test_a_next_run_that_has_passed_is_due_and_the_page_says_that_it_is_old(
    window: Window, registry: Registry
) -> None:
    trigger = registry.world.triggers[2]
    async with watched(window) as (page, _):
        for path, words, then in (
            (f"console/triggers/{trigger['sig']}", "Next run", "Run due"),
            ("console/triggers", "next in ", "due "),
            (f"console/account?address={trigger['signer']}", "next 1 ", "due 1 "),
        ):
            await page.goto(path)
            await expect(page.locator("main")).to_contain_text(words)
            await expect(page.locator(".old")).to_have_count(0)
            await page.evaluate(PASSED)
            await expect(page.locator("main")).not_to_contain_text(words)
            await expect(page.locator("main")).to_contain_text(then)
            await expect(page.locator(".old")).to_contain_text("This page was read")
            await page.get_by_role("button", name="Read it again").click()
            await expect(page.locator(".old")).to_have_count(0)


async def test_a_page_of_more_than_a_minute_says_so(window: Window) -> None:
    async with watched(window) as (page, _):
        await page.clock.install()
        await page.goto("console")
        await expect(page.locator(".old")).to_have_count(0)
        await page.clock.run_for(180_000)
        await expect(page.locator(".old")).to_have_text(re.compile(r"^This page was read \d+ \w+ ago Read it again$"))


async def test_ages_grow_while_a_page_is_open(window: Window) -> None:
    async with watched(window) as (page, _):
        await page.clock.install()
        await page.goto("console")
        newest = page.locator("table time").first
        before = await newest.inner_text()
        await page.clock.run_for(3 * 3_600_000)
        await expect(newest).not_to_have_text(before)
        await expect(newest).to_have_text(re.compile(r"^\d+ (hours|minutes) ago$"))
