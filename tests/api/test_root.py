"""`/`: a program learns where to begin, a browser is led to the console."""

from __future__ import annotations

from importlib.metadata import version
from itertools import product

import httpx2
import pytest

pytestmark = pytest.mark.one_engine

# As Chromium 130 and Firefox 132 ask for a page.
BROWSERS = [
    "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,image/apng,*/*;q=0.8",
    "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
    "application/json;q=0.1, TEXT/HTML;q=0.2",
]


async def test_a_browser_is_led_to_the_console(client: httpx2.AsyncClient) -> None:
    for method, accept in product(("GET", "HEAD"), BROWSERS):
        response = await client.request(method, "/", headers={"accept": accept})
        assert (response.status_code, response.headers["location"]) == (303, "console"), (method, accept)
        assert response.headers["vary"] == "Accept"
        page = await client.get("/" + response.headers["location"], headers={"accept": accept})
        assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")


async def test_a_program_is_shown_where_to_begin(client: httpx2.AsyncClient) -> None:
    for accept in (None, "*/*", "application/json", "text/*", "text/html;q=0", "text/html-ish"):
        response = await client.get("/", headers={"accept": accept} if accept else {})
        assert (response.status_code, response.headers["vary"]) == (200, "Accept"), accept
        assert response.json() == {
            "name": "muniment", "version": version("muniment"), "api": "/openapi.json", "docs": "/docs",
            "console": "/console",
        }  # fmt: skip
        head = await client.head("/", headers={"accept": accept} if accept else {})
        kept = ("content-type", "content-length", "vary")
        assert [head.headers[name] for name in kept] == [response.headers[name] for name in kept], accept
        assert (head.status_code, head.content) == (200, b"")
    for path in ("/openapi.json", "/docs", "/console"):
        assert (await client.get(path)).status_code == 200


async def test_there_is_no_icon(client: httpx2.AsyncClient) -> None:
    response = await client.get("/favicon.ico", headers={"accept": "image/avif,image/webp,*/*;q=0.8"})
    assert (response.status_code, response.json()["code"]) == (404, "unknown-path")
