"""Markup: what is put into a template is text, unless it is markup already."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from each_row import each_row
from muniment.service.http.html import markup
from muniment.service.http.html.markup import NOTHING, Html, html, strange, style_element

HOSTILE = ["<script>alert(1)</script>", '"><b x="', "'", "&amp;", "</title>", "{}", "%s"]


class Reader(HTMLParser):
    """The elements, the attributes and the text of a page."""

    def __init__(self, markup: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self.feed(markup)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.text += data


@each_row("text", HOSTILE)
def test_a_text_stays_a_text(text: str) -> None:
    read = Reader(html('<a title="{}">{}</a>', text, text))
    assert (read.elements, read.attributes, read.text) == (["a"], [("title", text)], text)


@given(st.text(alphabet=st.characters(exclude_characters="\r", exclude_categories=("Cs",))))
def test_any_text_stays_a_text(text: str) -> None:
    """But U+0000, which a parser replaces, and returns, which it normalises."""
    text = text.replace("\0", "")
    read = Reader(html("<p>{}</p>", text))
    assert (read.elements, read.text) == (["p"], text)


def test_markup_stays_markup() -> None:
    inner = html("<b>{}</b>", "<")
    assert html("<p>{}{}{}</p>", inner, [inner, inner], None) == "<p><b>&lt;</b><b>&lt;</b><b>&lt;</b></p>"
    assert html("{}", [inner, inner]) == "<b>&lt;</b><b>&lt;</b>"
    assert html("{}{}", 5, NOTHING) == "5"


def test_a_list_of_texts_is_escaped_too() -> None:
    texts: Any = ["<b>"]
    assert html("<p>{}</p>", texts) == "<p>&lt;b&gt;</p>"


@each_row("values", [(), ("a", "b")])
def test_values_fit_the_places(values: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match=f"has 1 places, not {len(values)}"):
        html("<p>{}</p>", *values)


@each_row(
    ("text", "shown"),
    [
        ("Every six hours", "Every six hours"), ("é ü 中 🙂", "é ü 中 🙂"), ("a\nb", "a\nb"),
        ("\u202egpj.exe", "U+202Egpj.exe"), ("a\u200bb", "aU+200Bb"), ("\x1b[31m", "U+001B[31m"), ("\0", "U+0000"),
        ("\u2066x\u2069", "U+2066xU+2069"), ("\ufeff", "U+FEFF"), ("\ue000", "U+E000"),
    ],
)  # fmt: skip
def test_unseen_characters_of_a_stranger_are_named(text: str, shown: str) -> None:
    assert Reader(strange(text)).text == shown


@each_row("text", [*HOSTILE, "\u202e<b>"])
def test_the_text_of_a_stranger_is_no_markup(text: str) -> None:
    assert set(Reader(strange(text)).elements) <= {"bdi", "span"}
    assert isinstance(strange(text), Html)


def test_a_style_sheet_cannot_end_its_element() -> None:
    assert style_element("a>b{}") == "<style>a>b{}</style>"
    with pytest.raises(ValueError, match="end its element"):
        style_element("</style><script>")


def test_no_other_module_makes_markup_by_itself() -> None:
    """Decision 0048: `html` escapes every value, so nothing else may call a text markup."""
    made = re.compile(r"\bHtml\(|cast\(\"?Html\b|__new__\(Html")
    source = Path(markup.__file__).parents[2]
    others = [path for path in source.rglob("*.py") if path != Path(markup.__file__)]
    assert [str(path) for path in others if made.search(path.read_text("utf-8"))] == []
    assert made.search(Path(markup.__file__).read_text("utf-8"))
