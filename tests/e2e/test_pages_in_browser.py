"""Every page in a real browser: accessible in both themes, within its budget, and calm."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable
from functools import cache

import httpx2
import pytest
import pytest_asyncio
from playwright.async_api import Browser, ViewportSize

from answers import ok
from browsing import Window, covered_section, overflow, shift, violations, window_of
from builders import Wallet
from console_world import Registry
from proving import ASSETS

pytestmark = pytest.mark.asyncio(loop_scope="session")

PAGES: dict[str, Callable[[Registry], str]] = {
    "overview": lambda _: "console",
    "functions": lambda _: "console/functions",
    "function": lambda registry: f"console/functions/{registry.world.cids['Refill']}",
    "deploy": lambda _: "console/deploy",
    "triggers": lambda _: "console/triggers",
    "trigger": lambda registry: f"console/triggers/{registry.world.triggers[3]['sig']}",
    "deactivated": lambda registry: f"console/triggers/{registry.world.triggers[1]['sig']}",
    "hostile": lambda registry: f"console/triggers/{registry.world.triggers[-1]['sig']}",
    "choice of a function": lambda _: "console/triggers/new",
    "wizard": lambda registry: f"console/triggers/new?functionCid={registry.world.cids['Refill']}",
    "runs": lambda _: "console/runs",
    "run": lambda registry: f"console/runs/{registry.world.runs['intents']}",
    "hostile run": lambda registry: f"console/runs/{registry.world.runs['hostile']}",
    "intents": lambda _: "console/intents",
    "intent": lambda registry: f"console/intents/{registry.world.intents['failed'][-1]}",
    "unfinished": lambda registry: f"console/intents/{registry.world.intents['created'][0]}",
    "address": lambda _: f"console/addresses/{Wallet(61).address}",
    "account": lambda _: "console/account",
    "home": lambda _: f"console/account?address={Wallet(62).address}",
    "wrong address": lambda _: "console/account?address=0x12",
    "log": lambda _: "console/log",
    "service": lambda _: "console/service",
    "find": lambda _: "console/find?q=nothing",
    "refused": lambda _: "console/triggers/0x12",
    "unknown": lambda _: "console/nothing",
    "docs": lambda _: "docs",
    "error": lambda _: "errors/invalid-address",
}  # fmt: skip
# Of what a page asks for by itself, without the answers of the API: kilobytes of scripts as they are and as they are
# sent, and files. The wizard is the longest.
SCRIPTS_KB, SCRIPTS_SENT_KB, STYLES_KB, FILES = 60, 24, 25, 12
# The same of all scripts together; eight kilobytes are the proofs of the transparency log, one the log-in in words, ten
# the QR code, ten the home of an owner and who reads.
ALL_KB, ALL_SENT_KB = 140, 60


# Windows around each width at which the layout changes, and far from it.
WIDTHS = (390, 560, 704, 710, 768, 820, 900, 1024, 1030, 1100, 1160, 1440, 2560)
# The words for an age are longest just before two minutes. A test that comes then must find what others find.
LONGEST_AGES = """() => {
  for (const each of document.querySelectorAll("time:not([data-as])")) each.textContent = "119 seconds ago";
}"""
PHONE, DESK = ViewportSize(width=320, height=640), ViewportSize(width=1280, height=720)


@pytest_asyncio.fixture(
    scope="module", loop_scope="session", params=["light", pytest.param("dark", marks=pytest.mark.long)]
)
async def window(request: pytest.FixtureRequest, chromium: Browser, registry: Registry) -> AsyncIterator[Window]:
    """It asks for every file again."""
    async with window_of(chromium, registry.url, color_scheme=request.param) as made:
        session = await made.context.new_cdp_session(made.page)
        await session.send("Network.enable")
        await session.send("Network.setCacheDisabled", {"cacheDisabled": True})
        yield made


@pytest.mark.parametrize("name", PAGES)
async def test_a_page_fits_a_phone_stands_still_asks_for_little_and_is_accessible(
    window: Window, registry: Registry, name: str
) -> None:
    page, watch = window.page, window.watch
    watch.requests.clear()
    await page.set_viewport_size(PHONE)
    await page.goto(PAGES[name](registry))
    await page.wait_for_load_state("networkidle") if name == "wizard" else await page.wait_for_timeout(150)
    assert await overflow(page) == []
    assert await covered_section(page) is None
    assert await shift(page) <= 0.02
    files = {each.url for each in watch.requests if "/assets/" in each.url or each.is_navigation_request()}
    for size in (ViewportSize(width=390, height=844), DESK):
        await page.set_viewport_size(size)
        assert await violations(page) == [], size
    await page.evaluate(LONGEST_AGES)
    for width in (PHONE["width"], *WIDTHS):
        await page.set_viewport_size(ViewportSize(width=width, height=720))
        assert await overflow(page) == [], width
    watch.expect_refusals()
    faults, watch.faults = watch.faults, []
    assert faults == []
    scripts = [size_of(url) for url in files if url.endswith(".js")]
    styles = [size_of(url) for url in files if url.endswith(".css")]
    assert 1 <= len(files) <= FILES
    assert sum(size for size, _ in scripts) <= SCRIPTS_KB * 1024
    assert sum(sent for _, sent in scripts) <= SCRIPTS_SENT_KB * 1024
    assert sum(size for size, _ in styles) <= STYLES_KB * 1024


async def test_the_header_stands_still_on_a_phone_while_it_arrives(window: Window) -> None:
    """A browser paints what it has of a page: what comes later in the header moves nothing before it."""
    page = window.page
    await page.set_viewport_size(PHONE)
    await page.goto("console")
    whole, without_what_follows = await page.evaluate(
        """() => {
             const nav = document.querySelector(".top nav");
             const places = () => [...document.querySelectorAll(".menu-button, .brand")].map((each) => {
               const { x, y } = each.getBoundingClientRect();
               return [x, y];
             });
             const whole = places();
             while (nav.nextElementSibling) nav.nextElementSibling.remove();
             return [whole, places()];
           }"""
    )
    assert whole == without_what_follows


@cache
def size_of(url: str) -> tuple[int, int]:
    """The length of a file as it is, and as it is sent."""
    whole = httpx2.get(url, headers={"accept-encoding": "identity"})
    return len(whole.content), int(httpx2.get(url, headers={"accept-encoding": "gzip"}).headers["content-length"])


async def test_all_scripts_together_are_small(registry: Registry) -> None:
    page = ok(httpx2.get(f"{registry.url}/console", headers={"accept": "text/html"})).text
    release = re.findall(r"console/assets/([0-9a-f]+)/", page)[0]
    names = [each.relative_to(ASSETS) for each in ASSETS.rglob("*.js")]
    sizes = [size_of(f"{registry.url}/console/assets/{release}/{name}") for name in names]
    assert sum(size for size, _ in sizes) <= ALL_KB * 1024
    assert sum(sent for _, sent in sizes) <= ALL_SENT_KB * 1024
