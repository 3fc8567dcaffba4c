"""The EventSource of a real browser: straight, and through the proxies as they are shipped."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest
from browser import Browser, browsing
from shipped_caddy import caddy

from feed_writing import add_events, execute_all
from muniment.service.resources.feed.events import Position
from ports import free_port
from service import Service
from shipped_nginx import shipped_nginx

HASTY = str(Path(__file__).parents[1] / "process" / "hasty.py")
ENVIRONMENT = {"BEAT_SECONDS": "1", "READ_SECONDS": "60", "MUNIMENT_TRUSTED_PROXIES": "127.0.0.1"}
OWNER, OTHER = bytes(19) + b"\x07", bytes(19) + b"\x08"


class World(NamedTuple):
    """A service behind a proxy or none, and a folder."""

    service: Service
    url: str
    home: Path


@pytest.fixture(params=["straight", "nginx", "caddy"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    port = free_port()
    service = Service(tmp_path / "data", port=port, program=[HASTY], environment=ENVIRONMENT)
    with ExitStack() as stack:
        stack.enter_context(service)
        url = service.url
        if request.param != "straight":
            (tmp_path / "proxy").mkdir()
        if request.param == "nginx":
            url = stack.enter_context(shipped_nginx(tmp_path / "proxy", service.url))
        if request.param == "caddy":
            at = free_port()
            url = f"http://127.0.0.1:{at}"
            stack.enter_context(caddy(tmp_path / "proxy", url, at, service.url.removeprefix("http://")))
        yield World(service, url, tmp_path)


def add(world: World, count: int, owner: bytes = OWNER) -> None:
    asyncio.run(add_events(world.service.data_dir, "", count, owner))


def execute(world: World, *statements: str) -> None:
    asyncio.run(execute_all(world.service.data_dir, "", list(statements)))


def seen(browser: Browser, name: str) -> list[int]:
    """The numbers of the events that a stream gave to `onmessage`; reports may overtake each other."""
    return sorted(Position.parse(each["id"]).seq for each in browser.of(name))


def test_a_browser_follows_through_a_crash_of_the_service_and_misses_nothing(world: World) -> None:
    with browsing(world.home / "browser", {"all": f"{world.url}/events/stream"}) as browser:
        browser.wait(lambda: bool(browser.of("all", "open")))
        add(world, 3)
        browser.wait(lambda: len(seen(browser, "all")) == 3)
        world.service.kill()
        add(world, 2)
        # The first attempt to come back meets no service: a proxy answers in its place.
        browser.wait(lambda: len(browser.of("all", "error")) == 2)
        world.service.start()
        browser.wait(lambda: len(seen(browser, "all")) == 5)
        add(world, 1)
        browser.wait(lambda: len(seen(browser, "all")) == 6)
        assert seen(browser, "all") == [1, 2, 3, 4, 5, 6]
        assert not any(each["isClosed"] for each in browser.of("all", "error"))


def test_a_browser_comes_back_to_its_bookmark_and_is_told_when_that_is_too_old(world: World) -> None:
    quiet = f"{world.url}/events/stream?owner=0x{OTHER.hex()}"
    with browsing(world.home / "browser", {"all": f"{world.url}/events/stream", "quiet": quiet}) as browser:
        browser.wait(lambda: all(browser.of(name, "open") for name in ("all", "quiet")))
        add(world, 5)
        browser.wait(lambda: len(seen(browser, "all")) == 5)
        time.sleep(3)  # longer than a stream is silent: the quiet one knows that it has passed the five
        world.service.kill()
        add(world, 1)
        execute(world, "UPDATE feed SET floor_seq = 5", "DELETE FROM events WHERE seq <= 5")
        world.service.start()
        browser.wait(lambda: len(seen(browser, "all")) == 6)
        browser.wait(lambda: len(browser.of("quiet", "open")) >= 2)
        add(world, 1, OTHER)
        browser.wait(lambda: seen(browser, "quiet") == [7])
        assert [each for each in browser.said if each["kind"] == "reset"] == []
        world.service.kill()
        add(world, 4)
        execute(world, "UPDATE feed SET floor_seq = 10", "DELETE FROM events WHERE seq <= 10")
        world.service.start()
        browser.wait(lambda: all(browser.of(name, "reset") for name in ("all", "quiet")))
        assert browser.of("quiet", "reset")[0]["data"]["code"] == "cursor-too-old"
        add(world, 1, OTHER)
        browser.wait(lambda: seen(browser, "quiet") == [7, 12])
        browser.wait(lambda: seen(browser, "all") == [1, 2, 3, 4, 5, 6, 7, 12])


def test_a_browser_over_the_limit_goes_on_trying(tmp_path: Path) -> None:
    environment = {**ENVIRONMENT, "MUNIMENT_FEED_STREAMS_PER_CLIENT_MAX": "1"}
    with (
        Service(tmp_path / "data", program=[HASTY], environment=environment) as service,
        browsing(tmp_path / "browser", dict.fromkeys(("a", "b"), f"{service.url}/events/stream")) as browser,
    ):
        browser.wait(lambda: any(each["kind"] == "error" for each in browser.said))
        time.sleep(1)
        errors = [each for each in browser.said if each["kind"] == "error"]
        assert (len(errors), errors[0]["isClosed"]) == (1, False), "it waits for twenty seconds and more"
