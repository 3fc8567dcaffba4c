"""The frame: links that work under any path, and header fields that allow no more than a page needs."""

from __future__ import annotations

import base64
import hashlib
import re
from urllib.parse import urljoin

from each_row import each_row
from muniment.service.http.assets import Assets
from muniment.service.http.html.frame import Page, framed, plain, root_from
from muniment.service.http.html.markup import html

ASSETS = Assets("console/assets/abc", "release", ("frame.css",), {"a.js": ("b.js", "c/d.js"), "frame.js": ()})
PAGE = Page("A <title>", html("<h1>Body</h1>"), "triggers", "../triggers", ("a.js",))


@each_row("base", ["http://host", "http://host/registry"])
@each_row("path", ["/console", "/console/triggers", "/console/triggers/0x12", "/docs", "/errors/x", "/console/"])
def test_the_root_is_found_from_every_page(base: str, path: str) -> None:
    assert urljoin(f"{base}{path}", root_from(path)) == f"{base}/"


@each_row("path", ["/console", "/console/triggers/0x12"])
def test_no_link_is_absolute(path: str) -> None:
    for made in (framed(PAGE, root_from(path), ASSETS), plain(PAGE, root_from(path))):
        links = re.findall(r'(?:href|src|action)="([^"]*)"', made.body.decode())
        assert links
        assert [link for link in links if link.startswith("/") or "://" in link.removeprefix("data:")[:8]] == []


def test_a_page_names_the_modules_that_it_runs_once() -> None:
    body = framed(PAGE, "../", ASSETS).body.decode()
    assert re.findall(r'modulepreload" href="([^"]*)"', body) == [
        f"../console/assets/abc/{name}" for name in ("frame.js", "a.js", "b.js", "c/d.js")
    ]
    assert re.findall(r'<script type="module" src="([^"]*)"></script>', body) == [
        "../console/assets/abc/frame.js", "../console/assets/abc/a.js",
    ]  # fmt: skip


def test_a_title_is_text() -> None:
    assert "<title>A &lt;title&gt; · Muniment</title>" in framed(PAGE, "./", ASSETS).body.decode()


def test_the_section_of_a_page_is_marked() -> None:
    body = framed(PAGE, "../", ASSETS).body.decode()
    assert re.findall(r'href="([^"]*)" aria-current="page"', body) == ["../console/triggers"]


def test_only_the_style_of_a_plain_page_is_allowed() -> None:
    made = plain(PAGE, "./")
    (style,) = re.findall(r"<style>(.*?)</style>", made.body.decode(), re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = dict(made.headers)[b"content-security-policy"].decode()
    assert f"style-src 'sha256-{digest}'" in policy
    assert "script-src" not in policy
    assert "unsafe" not in policy


def test_a_page_leads_to_the_console_where_there_is_one() -> None:
    assert "../console" in framed(PAGE, "../", ASSETS).body.decode()
    assert "../console" not in plain(PAGE, "../").body.decode()


def test_a_page_with_scripts_takes_no_text_for_a_script() -> None:
    policy = dict(framed(PAGE, "./", ASSETS).headers)[b"content-security-policy"].decode()
    assert "script-src 'self';" in policy
    assert "require-trusted-types-for 'script'; trusted-types 'none'" in policy
    assert "unsafe" not in policy
