"""Markup: a template is text of ours, and everything put into it is escaped unless it is markup already."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from html import escape, unescape
from typing import Final, LiteralString, TypeAlias, cast

from muniment.protocol.visible import visible

# Templates kept, split at their places: the code has some two hundred.
_TEMPLATES_KEPT: Final = 512
# Markup of ours: in attributes `>` is escaped.
_TAG: Final = re.compile(r"<[^>]*>")
_LINE_END: Final = "\n"


class Html(str):
    """Markup. Only this module makes it (decision 0048, a test checks it): use `html`."""

    __slots__ = ()


# A value for a place of a template. None is empty; several pieces of markup are joined.
Value: TypeAlias = "str | int | Iterable[Html] | None"

NOTHING: Final = Html()


def html(template: LiteralString, *values: Value) -> Html:
    """`template` with `values` at its places, each written `{}`: a text is escaped, for content and for attributes.

    Attributes stand in double quotes. Raises `ValueError` when the values do not fit the places.
    """
    pieces = _pieces(template)
    if len(values) != len(pieces) - 1:
        raise ValueError(f"the template has {len(pieces) - 1} places, not {len(values)}")
    written = [pieces[0]]
    for value, piece in zip(values, pieces[1:], strict=True):
        written += _written(value), piece
    return Html("".join(written))


def style_element(sheet: str) -> Html:
    """A `<style>` element of a style sheet of this package, which is not escaped."""
    if "</" in sheet:
        raise ValueError("a style sheet cannot end its element")
    return Html(f"<style>{sheet}</style>")


def strange(text: str) -> Html:
    """The text of a stranger, apart from the direction of writing around it; unseen characters are named."""
    return Html(f"<bdi>{visible(escape(text), keeps=_LINE_END, written=_marked)}</bdi>")


def seen(text: str) -> str:
    """The text of a stranger where no markup can be, such as a title: unseen characters are named."""
    return visible(text, keeps=_LINE_END, written=_named)


def text_of(markup: Html | None) -> str:
    """The text of markup, for where no markup can be."""
    return unescape(_TAG.sub("", markup or ""))


@lru_cache(maxsize=_TEMPLATES_KEPT)
def _pieces(template: str) -> list[str]:
    return template.split("{}")


def _written(value: Value) -> str:
    if isinstance(value, Html):
        return value
    if isinstance(value, str):
        return escape(value)
    if value is None:
        return ""
    if isinstance(value, int):
        return str(value)
    return "".join(_only_markup(each) for each in value)


def _only_markup(part: Html) -> str:
    # A list of plain texts would go out as it is: the types forbid it, and this line does where types do not reach.
    return part if isinstance(cast("object", part), Html) else escape(part)


def _named(character: str) -> str:
    return f"U+{ord(character):04X}"


def _marked(character: str) -> str:
    return f'<span class="unseen">{_named(character)}</span>'
