"""Pages as a browser would see them, without a browser, and fixtures to request them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from html.parser import HTMLParser
from typing import Any

import httpx2
import pytest

from console_world import World, fill
from muniment.service.app import Application
from muniment.service.context import Context
from without_server import InProcess

# The header of a request for a page.
BROWSER = {"accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


class Outline(HTMLParser):
    """The elements of a page, its links and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []
        self.handlers: list[str] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [value or "" for name, value in attrs if name in {"href", "src", "action"}]
        self.handlers += [name for name, _ in attrs if name.startswith("on") or name == "style"]

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture
async def reader(app: Application) -> AsyncIterator[httpx2.AsyncClient]:
    """Requests of a browser, without the comparison with OpenAPI, which lacks the console."""
    transport = InProcess(app)
    async with httpx2.AsyncClient(transport=transport, base_url="http://test", headers=BROWSER) as made:
        yield made


@pytest.fixture
async def world(context: Context, reader: httpx2.AsyncClient, clock: Any) -> World:
    return await fill(context, reader, lambda now_ms: setattr(clock, "now_ms", now_ms), intents=30)
