"""Pages that are looked at while the registry changes: they tell of it, and nothing moves by itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
from playwright.async_api import Page, Route, expect

from browsing import Watch, Window, violations, watched
from builders import Bundle, TriggerDraft, Wallet, cron, deploy, register
from console_world import Registry
from operator_client import FAR_DEADLINE, IntentDraft, OperationsDraft, OperatorClient

pytestmark = pytest.mark.asyncio(loop_scope="session")
_HIDDEN = """
window.testHidden = false;
Object.defineProperty(document, "hidden", { get: () => window.testHidden });
"""


@asynccontextmanager
async def looking(window: Window, path: str) -> AsyncGenerator[tuple[Page, Watch]]:
    """A page whose timers a test can move forward, and that it can hide. They also go on by themselves."""
    async with watched(window) as (page, watch), await page.add_init_script(_HIDDEN):
        await page.clock.install()
        await page.goto(path)
        yield page, watch


async def hide(page: Page, *, hidden: bool) -> None:
    """Hide the page as another tab would, or show it again: a browser without a window has no tabs."""
    await page.evaluate(f"testHidden = {str(hidden).lower()}; document.dispatchEvent(new Event('visibilitychange'))")


@asynccontextmanager
async def writing(registry: Registry) -> AsyncGenerator[OperatorClient]:
    async with httpx2.AsyncClient(base_url=registry.url) as client:
        yield OperatorClient(client, registry.operator_key)


async def sign(registry: Registry, number: int) -> str:
    """Register one more trigger; its signature."""
    async with httpx2.AsyncClient(base_url=registry.url) as client:
        draft = TriggerDraft(
            registry.world.cids["Sweep rewards"], Wallet(number), description=f"Number {number}",
            config=cron(schedule=f"{number % 60} 1 * * *"),
        )  # fmt: skip
        return (await register(client, draft))["sig"]


def asked(watch: Watch, part: str) -> list[str]:
    return [each.url for each in watch.requests if part in each.url]


async def places(page: Page) -> list[float]:
    """Where the rows of the listing are."""
    return await page.evaluate("[...document.querySelectorAll('h1, tr')].map((row) => row.getBoundingClientRect().y)")


async def test_new_intents_are_told_of_and_shown_when_the_reader_wants_it(window: Window, registry: Registry) -> None:
    async with looking(window, "console/intents") as (page, watch), writing(registry) as operator:
        await expect_stream(page, watch)
        before = await places(page)
        drafts = (IntentDraft(901, FAR_DEADLINE), OperationsDraft(902, FAR_DEADLINE))
        written = [await operator.recorded(each) for each in drafts]
        await told(page, "2 new, show")
        assert await places(page) == before
        assert await violations(page) == []
        await page.get_by_role("button", name="2 new, show").click()
        for each in written:
            await expect(page.locator(f"#rows a[href$='{each}']")).to_be_visible()


async def test_rows_that_the_filters_leave_out_are_not_told_of(window: Window, registry: Registry) -> None:
    async with looking(window, "console/intents?status=enqueued") as (page, watch):
        await expect_stream(page, watch)
        async with writing(registry) as operator:
            await operator.recorded(IntentDraft(903, FAR_DEADLINE))
            await operator.recorded(IntentDraft(904, FAR_DEADLINE, {"status": "enqueued"}))
        await told(page, "1 new, show")


async def test_new_functions_are_told_of(window: Window, registry: Registry) -> None:
    async with looking(window, "console/functions") as (page, watch):
        await expect_stream(page, watch)
        async with httpx2.AsyncClient(base_url=registry.url) as client:
            await deploy(client, Bundle("Newer", "1.0.0"), Wallet(88))
        await told(page, "1 new, show")


async def test_an_empty_listing_tells_of_the_first_row(window: Window, registry: Registry) -> None:
    async with looking(window, f"console/triggers?signer={Wallet(905).address}") as (page, watch):
        await expect(page.get_by_text("Nothing matches.")).to_be_visible()
        await expect_stream(page, watch)
        await sign(registry, 905)
        await told(page, "1 new, show")


async def test_a_hidden_tab_asks_nothing_and_looks_when_it_is_seen_again(window: Window, registry: Registry) -> None:
    async with looking(window, "console/triggers") as (page, watch):
        await expect_stream(page, watch)
        await page.clock.run_for(2_000)
        async with page.expect_event("requestfailed", lambda each: "events/stream" in each.url):
            await hide(page, hidden=True)
        before = len(watch.requests)
        await sign(registry, 906)
        await page.clock.run_for(60_000)
        assert watch.requests[before:] == []
        await hide(page, hidden=False)
        await told(page, "1 new, show")
        assert len(asked(watch, "events/stream")) == 2


async def test_without_a_feed_the_listing_is_asked_now_and_then(window: Window, registry: Registry) -> None:
    async def refuse(route: Route) -> None:
        await route.fulfill(status=404, json={"code": "unknown-path"})

    async with looking(window, "console") as (page, watch):
        await page.route("**/events/stream?*", refuse)
        async with page.expect_response("**/events/stream?*"):
            await page.goto("console/triggers")
        await sign(registry, 907)
        await told(page, "1 new, show", step_ms=20_000)
        assert len(asked(watch, "events/stream")) == 1
        watch.expect_refusals()


async def test_an_intent_tells_that_it_has_changed_and_then_asks_no_more(window: Window, registry: Registry) -> None:
    async with writing(registry) as operator:
        intent = await operator.recorded(IntentDraft(908, FAR_DEADLINE))
        async with looking(window, f"console/intents/{intent}") as (page, watch):
            answers = page_answers(page, f"/intents/{intent}")
            async with page.expect_response(lambda each: each.url == f"{registry.url}/intents/{intent}"):
                await page.clock.run_for(7_000)
            await expect(page.locator("#changed")).to_be_empty()
            assert set(answers) == {304}
            before = await places(page)
            await operator.move(intent, "enqueued")
            await page.clock.run_for(7_000)
            show = page.get_by_role("button", name="It has changed, show")
            await expect(show).to_be_visible()
            assert await places(page) == before
            assert await violations(page) == []
            await page.clock.run_for(60_000)
            assert answers == [304] * (len(answers) - 1) + [200]
            await show.click()
            await expect(page.locator(".life")).to_contain_text("enqueued")
        await operator.move(intent, "discarded")
        async with looking(window, f"console/intents/{intent}") as (page, watch):
            await page.clock.run_for(60_000)
            assert len(asked(watch, f"/intents/{intent}")) == 1  # the page itself: it has ended


def page_answers(page: Page, path: str) -> list[int]:
    """The statuses of the answers from a path of the API, as they come."""
    found: list[int] = []

    def see(response: Any) -> None:
        if response.url.endswith(path) and "/console/" not in response.url:
            found.append(response.status)

    page.on("response", see)
    return found


async def expect_stream(page: Page, watch: Watch) -> None:
    """The page has a stream, and has looked once because of it."""
    await told(page, "", lambda: bool([each for each in watch.requests if "sort=1" in each.url]))


async def told(page: Page, words: str, seen: Any = None, *, step_ms: int = 1_100) -> None:
    """Move the timers of the page until its button has these words, or until `seen`."""
    try:
        async with asyncio.timeout(60):  # it ends a hang: the service may wait for a core meanwhile
            while True:
                await page.clock.run_for(step_ms)
                if (seen and seen()) or (words and await page.locator("#newer").inner_text() == words):
                    return
    except TimeoutError:
        raise AssertionError(f"not told: {words}") from None
