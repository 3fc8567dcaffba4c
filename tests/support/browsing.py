"""A real browser for the console: Chromium, in which a page that misbehaves fails its test."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from playwright.async_api import Browser, BrowserContext, ConsoleMessage, Page, Request, Route, async_playwright, expect

_AXE = Path(__file__).parents[1] / "e2e" / "axe" / "node_modules" / "axe-core" / "axe.min.js"
# The first draws no window: the tests of jobs take a quarter less CPU with it.
_NAMES = ("chromium-headless-shell", "chromium", "google-chrome", "google-chrome-stable", "chromium-browser")
_VIOLATIONS = """
document.addEventListener("securitypolicyviolation", (event) =>
  console.error(`policy: ${event.violatedDirective} ${event.blockedURI} ${event.sample}`));
"""
_SHIFT = """
window.shifted = 0;
new PerformanceObserver((list) => {
  for (const entry of list.getEntries()) if (!entry.hadRecentInput) window.shifted += entry.value;
}).observe({ type: "layout-shift", buffered: true });
"""
# It only ends a hang: a page beside other work takes longer than the five seconds of `expect`.
_MS_MAX = 60_000
expect.set_options(timeout=_MS_MAX)
_RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]


def browser_program() -> str | None:
    """Path of Chromium or Chrome: `TEST_CHROMIUM`, otherwise one on the path."""
    named = os.environ.get("TEST_CHROMIUM")
    return named or next((found for name in _NAMES if (found := shutil.which(name))), None)


@asynccontextmanager
async def browser() -> AsyncGenerator[Browser]:
    """A browser with an empty profile."""
    arguments = ["--disable-gpu", *(["--no-sandbox"] if os.geteuid() == 0 else [])]
    async with async_playwright() as driver:
        launched = await driver.chromium.launch(executable_path=browser_program(), args=arguments)
        yield launched
        await launched.close()


@dataclass
class Watch:
    """Requests and faults of the pages of a test."""

    host: str
    requests: list[Request] = field(default_factory=list[Request])
    faults: list[str] = field(default_factory=list[str])

    def see(self, request: Request) -> None:
        self.requests.append(request)
        if urlsplit(request.url).scheme in {"http", "https"} and urlsplit(request.url).netloc != self.host:
            self.faults.append(f"a request to another host: {request.url}")

    def expect_refusals(self) -> None:
        """Ignore console errors about 4xx answers that this test expects."""
        self.faults = [each for each in self.faults if "responded with a status of 40" not in each]

    def attach(self, page: Page) -> None:
        page.on("request", self.see)
        page.on("pageerror", lambda error: self.faults.append(f"an error: {error}"))
        page.on("console", self.keep)

    def keep(self, message: ConsoleMessage) -> None:
        """Keep errors and warnings."""
        if message.type in {"error", "warning"}:
            self.faults.append(message.text)


async def _answer_empty(route: Route) -> None:
    """A page of the service's origin that does nothing, and names an icon so that the browser asks for none."""
    await route.fulfill(content_type="text/html", body='<link rel="icon" href="data:,">')


@dataclass
class Window:
    """A page for one test after the other: a new browser context takes half a second of a core."""

    context: BrowserContext
    watch: Watch
    page: Page

    async def empty(self, *, is_new: bool) -> None:
        """Stop what the page does, and forget what it has stored; or have a new page, if this one may be broken."""
        if is_new:
            await self.page.close()
            self.page = await self.context.new_page()
        await self.page.unroute_all(behavior="ignoreErrors")
        await self.page.route("**/empty", _answer_empty)
        await self.page.goto("empty")
        await self.page.evaluate("localStorage.clear(); sessionStorage.clear()")
        await self.page.unroute_all()
        await self.context.clear_cookies()


@asynccontextmanager
async def window_of(browser: Browser, url: str, **options: Any) -> AsyncGenerator[Window]:
    """A window for the pages of a service."""
    context = await browser.new_context(base_url=url, **options)
    context.set_default_timeout(_MS_MAX)
    watch = Watch(urlsplit(url).netloc)
    context.on("page", watch.attach)
    await context.add_init_script(_VIOLATIONS + _SHIFT)
    yield Window(context, watch, await context.new_page())
    await context.close()


@asynccontextmanager
async def watched(window: Window) -> AsyncGenerator[tuple[Page, Watch]]:
    """An empty page that fails the test on console errors, policy violations and foreign requests."""
    window.watch.requests, window.watch.faults = [], []
    is_broken = True
    try:
        yield window.page, window.watch
        await window.page.evaluate("0")  # what the page has said until now has come
        faults, is_broken = [*window.watch.faults], False
    finally:
        await window.empty(is_new=is_broken)
    assert faults == [], faults


async def violations(page: Page) -> list[str]:
    """Violations that axe-core finds on a page, by WCAG 2.2 AA and best practice."""
    await page.evaluate(_AXE.read_text("utf-8"))
    options = f'{{ runOnly: {_RULES}, resultTypes: ["violations"] }}'  # others are not put into words
    found: dict[str, Any] = await page.evaluate(f"axe.run({options})")
    return [
        f"{each['id']}: {', '.join(node['html'][:120] for node in each['nodes'][:3])}" for each in found["violations"]
    ]


async def shift(page: Page) -> float:
    """The cumulative layout shift of a page until now."""
    return await page.evaluate("window.shifted")


async def covered_section(page: Page) -> str | None:
    """The link of the section that the page belongs to, if something covers the middle of it. A menu may be closed."""
    return await page.evaluate(
        """() => {
             const link = document.querySelector(".top nav a[aria-current]");
             if (!link?.checkVisibility()) return null;
             const box = link.getBoundingClientRect();
             const seen = document.elementFromPoint(box.left + box.width / 2, box.top + box.height / 2);
             return seen === link ? null : link.textContent;
           }"""
    )


async def overflow(page: Page) -> list[str]:
    """The elements that make a page scroll sideways."""
    return await page.evaluate(
        """() => {
             if (document.documentElement.scrollWidth <= innerWidth) return [];
             const wide = [...document.querySelectorAll("body *")]
               .filter((each) => each.getBoundingClientRect().right > innerWidth + 1);
             return ["the page", ...wide.map((each) => each.outerHTML.slice(0, 120))];
           }"""
    )
