"""Pages on a phone: the menu, the search box in the header, folded filters, and rows of a few lines."""

from __future__ import annotations

import pytest
from playwright.async_api import ViewportSize, expect

from browsing import Window, violations, watched
from console_world import Registry

pytestmark = pytest.mark.asyncio(loop_scope="session")
PHONE, DESK = ViewportSize(width=390, height=844), ViewportSize(width=1280, height=800)
LISTS = ("console", "console/triggers", "console/runs", "console/intents", "console/functions")


async def test_a_menu_has_the_sections(window: Window) -> None:
    async with watched(window) as (page, _):
        await page.set_viewport_size(PHONE)
        await page.goto("console/triggers")
        sections = page.get_by_role("navigation", name="Sections")
        await expect(sections).to_be_hidden()
        await page.get_by_role("button", name="Menu").click()
        await expect(sections.get_by_role("link", name="Triggers")).to_have_attribute("aria-current", "page")
        assert await violations(page) == []
        await page.keyboard.press("Escape")
        await expect(sections).to_be_hidden()
        await page.get_by_role("button", name="Menu").click()
        await sections.get_by_role("link", name="Runs").click()
        await expect(page.get_by_role("heading", level=1)).to_have_text("Runs")
        await page.set_viewport_size(DESK)
        await expect(page.get_by_role("button", name="Menu")).to_be_hidden()
        await expect(sections.get_by_role("link")).to_have_count(7)
        await expect(sections.get_by_role("link", name="Triggers")).to_be_visible()


async def test_the_search_box_is_in_the_header(window: Window) -> None:
    async with watched(window) as (page, _):
        await page.set_viewport_size(PHONE)
        await page.goto("console")
        box = page.get_by_role("searchbox", name="Find")
        await box.fill("nothing that anybody has")
        await box.press("Enter")
        await expect(page.get_by_role("heading", level=1)).to_have_text("Find")


async def test_filters_are_folded_until_they_are_used(window: Window) -> None:
    async with watched(window) as (page, _):
        for path in LISTS[1:]:
            await page.set_viewport_size(PHONE)
            await page.goto(path)
            form = page.get_by_role("form", name="Filter")
            await expect(form).to_be_hidden()
            await page.locator("summary", has_text="Filter").click()
            await expect(form).to_be_visible()
            await page.reload()
            await page.set_viewport_size(DESK)
            await expect(form).to_be_visible()
        await page.set_viewport_size(PHONE)
        await page.goto("console/triggers?active=true")
        await expect(page.get_by_role("form", name="Filter")).to_be_visible()


CUT = """() => [...document.querySelectorAll("main *")].filter((each) => {
  const { textOverflow, webkitLineClamp } = getComputedStyle(each);
  return textOverflow === "ellipsis" || webkitLineClamp !== "none";
}).map((each) => each.outerHTML)"""


async def test_no_number_is_cut_by_a_style(window: Window, registry: Registry) -> None:
    """A cut number is a wrong number: what is shortened is so in its text."""
    owner = registry.world.triggers[2]["signer"]
    async with watched(window) as (page, _):
        for width in (PHONE, DESK):
            await page.set_viewport_size(width)
            for path in (*LISTS, f"console/account?address={owner}", f"console/addresses/{owner}"):
                await page.goto(path)
                assert await page.evaluate(CUT) == [], path


async def test_rows_of_lists_are_small(window: Window) -> None:
    async with watched(window) as (page, _):
        for width in (PHONE, DESK):
            await page.set_viewport_size(width)
            for path in LISTS:
                await page.goto(path)
                rows = page.locator("table.list tbody tr")
                heights: list[float] = await rows.evaluate_all("(all) => all.map((each) => each.offsetHeight)")
                assert heights, path
                assert max(heights) <= 120, (path, width, heights)
