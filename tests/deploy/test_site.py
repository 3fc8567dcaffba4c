"""The site that `make docs` makes of the documentation: all links lead somewhere, and it needs no other host."""

from __future__ import annotations

import json
import re
import subprocess
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from programs import ROOT

_SOURCES = sorted([
    *(ROOT / "docs").rglob("*.md"),
    *(ROOT / "bench").glob("*.md"),
    *(ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")),
])  # fmt: skip
# What a browser fetches by itself when it shows a page.
_LOADED = {"img": "src", "script": "src", "source": "src", "iframe": "src", "link": "href"}
_ELSEWHERE = re.compile(r"(?:https?:)?//", re.IGNORECASE)
# A word that only these pages are about.
_WORDS = {"viem": "docs/use/typescript", "patroni": "docs/run/high-availability", "asyncpg": "docs/decisions/0016-"}


class Page(HTMLParser):
    """The ids of a page, what it links to, what it loads, and the text of its own styles."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.ids = set[str]()
        self.links = list[str]()
        self.loaded = list[str]()
        self.styles = ""
        self._in_style = False
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.ids |= {values["id"]} if "id" in values else set()
        self.links += [values["href"]] if tag == "a" and "href" in values else []
        self.loaded += [values[_LOADED[tag]]] if _LOADED.get(tag) in values else []
        self.styles += values.get("style", "")
        self._in_style = tag == "style"

    def handle_endtag(self, tag: str) -> None:
        self._in_style &= tag != "style"

    def handle_data(self, data: str) -> None:
        self.styles += data if self._in_style else ""


@cache
def _page(file: Path) -> Page:
    return Page(file.read_text("utf-8"))


def _broken_links(site: Path) -> list[str]:
    """Links and loaded files that are not in the site, each after the page that has it."""
    return [
        f"{file.relative_to(site)}: {target}"
        for file in sorted(site.rglob("*.html"))
        for target in [*_page(file).links, *_page(file).loaded]
        if not _leads_somewhere(file, target)
    ]


def _leads_somewhere(file: Path, target: str) -> bool:
    parts = urlsplit(target)
    if parts.scheme or parts.netloc:
        return True
    found = (file.parent / unquote(parts.path)).resolve() if parts.path else file
    return found.is_file() and (not parts.fragment or unquote(parts.fragment) in _page(found).ids)


def _loaded_from_elsewhere(site: Path) -> list[str]:
    """What a browser would fetch from another host to show the pages, each after the file that asks for it."""
    asked = [(file, target) for file in site.rglob("*.html") for target in _page(file).loaded]
    texts = [(file, _page(file).styles) for file in site.rglob("*.html")]
    texts += [(file, file.read_text("utf-8")) for file in site.rglob("*.css")]
    asked += [(file, target) for file, text in texts for target in _named_in_style(text)]
    return [f"{file.relative_to(site)}: {target}" for file, target in asked if _ELSEWHERE.match(target)]


def _named_in_style(text: str) -> list[str]:
    return re.findall(r"""(?:url\(|@import)\s*["']?([^"')\s]+)""", text)


def _github_anchors(markdown: str) -> list[str]:
    """The anchors of headings; the second one of the same text has a number."""
    text = re.sub(r"^ *```.*?^ *```", "", markdown, flags=re.DOTALL | re.MULTILINE)
    anchors = list[str]()
    for title in re.findall(r"^#+ (.+)$", text, re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title)
        anchor = re.sub(r"[^\w\- ]", "", plain.lower()).strip().replace(" ", "-")
        earlier = sum(each == anchor for each in anchors)
        anchors.append(f"{anchor}-{earlier}" if earlier else anchor)
    return anchors


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site") / "docs"
    words = ["make", "--no-print-directory", "docs", f"SITE={folder}"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False, timeout=900)
    assert (done.returncode, done.stderr) == (0, ""), "a warning is an error"
    return folder


def test_all_links_and_anchors_lead_somewhere(built: Path) -> None:
    assert _broken_links(built) == []


def test_nothing_is_loaded_from_another_host(built: Path) -> None:
    assert _loaded_from_elsewhere(built) == []


def test_each_page_has_the_anchors_that_github_gives_it(built: Path) -> None:
    missing = {
        source.name: anchors
        for source in _SOURCES
        if (anchors := set(_github_anchors(source.read_text("utf-8"))) - _page(_made_of(source, built)).ids)
    }
    assert missing == {}


def _made_of(source: Path, site: Path) -> Path:
    return (site / source.relative_to(ROOT)).with_suffix(".html")


def test_each_page_can_be_reached_from_the_sidebar(built: Path) -> None:
    home = built / "docs" / "index.html"
    linked = {(home.parent / urlsplit(link).path).resolve() for link in _page(home).links}
    unlinked = [source.name for source in _SOURCES if _made_of(source, built).resolve() not in linked]
    assert unlinked == ["index.md"], "the index itself is the home page"


def test_a_search_finds_words_of_several_pages(built: Path) -> None:
    text = (built / "searchindex.js").read_text("utf-8")
    index: dict[str, Any] = json.loads(text.removeprefix("Search.setIndex(").removesuffix(")"))
    for word, page in _WORDS.items():
        found = [index[terms].get(word, []) for terms in ("terms", "titleterms")]
        numbers = [number for each in found for number in (each if isinstance(each, list) else [each])]
        names = [index["docnames"][number] for number in numbers]
        assert [name for name in names if name.startswith(page)], f"{word} is found in {names}"


def test_a_broken_link_and_a_foreign_font_are_noticed(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(
        '<style>@import "//fonts.test/a.css"; p { src: url(https://fonts.test/b) }</style><p id="here">'
        '<script src="https://cdn.test/c.js"></script><img src="d.png"><a href="b.html#there">'
        '<a href="#here"><a href="#there"><a href="c.html"><a href="https://host.test">'
    )
    (tmp_path / "b.html").write_text("")
    (tmp_path / "e.css").write_text("p { background: url('http://cdn.test/e.png'), url(data:image/png,) }")
    assert _broken_links(tmp_path) == [f"a.html: {each}" for each in ("b.html#there", "#there", "c.html", "d.png")]
    assert _loaded_from_elsewhere(tmp_path) == [
        "a.html: https://cdn.test/c.js", "a.html: //fonts.test/a.css", "a.html: https://fonts.test/b",
        "e.css: http://cdn.test/e.png",
    ]  # fmt: skip


def test_the_anchors_of_github() -> None:
    page = "# A `b_c`: d, e!\n## Twice\n```sh\n# no heading\n```\n## Twice\n### [A link](b.md)\n"
    assert _github_anchors(page) == ["a-b_c-d-e", "twice", "twice-1", "a-link"]
