"""Components of pages: identifiers, states, facts, tables, and the links between pages of a listing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from muniment.console.asked import asked
from muniment.http.html.markup import NOTHING, Html, html, joined, seen
from muniment.http.paging import LIMIT_MAX

if TYPE_CHECKING:
    from muniment.context import Context
    from muniment.http.html.markup import Value
    from muniment.http.request import Request

# The events of the change feed that may add a row to a listing, and the member that names a row.
_FOLLOWED: Final = {
    "functions": ("function.created", "CID"),
    "triggers": ("trigger.created", "sig"),
    "intents": ("intent.created", "hash"),
}
# What a question for newer rows says by itself.
_PLACE: Final = frozenset({"cursor", "offset", "limit", "sort", "generation"})
# Characters at the beginning and the end of a shortened identifier: enough that no two look alike by chance.
_KEPT: Final = 6
_KEPT_OF_ADDRESS: Final = 4
# `0x` and 40 digits.
_ADDRESS_LENGTH: Final = 42


def identifier(text: str, href: str = "", *, whole: bool = False) -> Html:
    """A hash, a signature, a CID or an address, with a button that copies all of it; shortened unless `whole`."""
    shown = text if whole else shortened(text)
    name = (
        html('<a href="{}" title="{}">{}</a>', href, text, shown)
        if href
        else html('<span title="{}">{}</span>', text, shown)
    )
    return html(
        '<span class="id{}">{}<button type="button" class="copy" data-copy="{}" aria-label="Copy {}"></button></span>',
        " whole" if whole else "", name, text, shown,
    )  # fmt: skip


def shortened(text: str) -> str:
    """The beginning and the end of an identifier."""
    if not text.startswith("0x"):
        return text if len(text) <= 2 * _KEPT + 1 else f"{text[:_KEPT]}…{text[-_KEPT:]}"
    kept = _KEPT_OF_ADDRESS if len(text) == _ADDRESS_LENGTH else _KEPT
    return text if len(text) <= 2 * kept + 3 else f"{text[: 2 + kept]}…{text[-kept:]}"


def state(word: str) -> Html:
    """A state as a dot and its word; the style sheet knows the colour of the dot."""
    return html('<span class="state {}">{}</span>', word, word)


def facts(pairs: Iterable[tuple[str, Html | None]]) -> Html:
    """Names with values, one below the other; those without a value are left out."""
    return html(
        '<dl class="facts">{}</dl>', [html("<dt>{}<dd>{}", name, value) for name, value in pairs if value is not None]
    )


def table(names: Sequence[str], rows: Iterable[Sequence[Value]], *, label: str, numbers: Sequence[str] = ()) -> Html:
    """A table that is a list of cards on a phone. The columns in `numbers` end at their right edge."""
    heads = [
        html('<th scope="col"{}>{}', html(' class="number"') if name in numbers else NOTHING, name) for name in names
    ]
    body = [html("<tr>{}", [_cell(name, cell, numbers) for name, cell in zip(names, row, strict=True)]) for row in rows]
    return html('<table class="cards" aria-label="{}"><thead><tr>{}<tbody>{}</table>', label, heads, body)


def _cell(name: str, content: Value, numbers: Sequence[str]) -> Html:
    mark = html(' class="number"') if name in numbers else NOTHING
    return html('<td data-name="{}"{}><span>{}</span>', name, mark, content)


def link(href: str, words: str) -> Html:
    """A link at the end of a heading's line."""
    return html('<a href="{}">{}</a>', href, words)


def action(href: str, words: str) -> Html:
    """A link that looks like a button: what a reader of the page most likely does next."""
    return html('<a class="button first" href="{}">{}</a>', href, words)


def heading(words: Value, *, end: Html = NOTHING, level: int = 2) -> Html:
    """A heading with something at the end of its line."""
    title = html("<h1>{}</h1>", words) if level == 1 else html("<h2>{}</h2>", words)
    return html('<div class="line">{}{}</div>', title, end)


def pages(request: Request, following: str) -> Html:
    """The links to older and to the newest rows of the listing at the address of `request`."""
    parts = [part for part in request.query.decode("latin-1").split("&") if part and not part.startswith("cursor=")]
    links: list[Html] = []
    if is_later_page(request):
        links.append(html('<a class="button" href="?{}">Newest</a>', "&".join(parts)))
    if following:
        older = "&".join([*parts, f"cursor={following}"])
        links.append(html('<a class="button" href="?{}" rel="next">Older</a>', older))
    return html('<nav class="pages" aria-label="Pages">{}</nav>', links) if links else NOTHING


def is_later_page(request: Request) -> bool:
    """Whether the address names a later page of a listing."""
    return any(part.startswith(b"cursor=") for part in request.query.split(b"&"))


def address_of(*parts: str) -> str:
    """A path of the API or of a page, its parts percent-encoded."""
    return "/".join(quote(part, safe="") for part in parts)


def live(kind: str, cursor: str, rows: Html, request: Request) -> Html:
    """The rows of a listing, with what a script needs to tell of newer ones; those of a later page stay as they are."""
    if is_later_page(request) or not cursor:
        return rows
    types, name = _FOLLOWED[kind]
    given = asked(request).decode("ascii", "replace").split("&")
    kept = [part for part in given if part and part.partition("=")[0] not in _PLACE]
    generation = ["generation=all"] if kind == "intents" else []
    query = "&".join([*kept, *generation, "sort=1", f"limit={LIMIT_MAX}", f"cursor={cursor}"])
    return html(
        '<div id="newer" class="newer" aria-live="polite"></div>'
        '<div id="rows" data-path="{}?{}" data-name="{}" data-types="{}">{}</div>',
        kind, query, name, "" if request.context.settings.feed == "off" else types, rows,
    )  # fmt: skip


def logged(context: Context, path: str, protocol: str = "", *, is_end: bool = False) -> Html:
    """The place for the proof that the record at `path` of the API is in the transparency log, which needs a script.

    `is_end`: the record is the deactivation of the trigger that the page shows.
    """
    if context.settings.tlog == "off":
        return NOTHING
    return html(
        '<section class="check" id="{}" data-path="{}" data-protocol="{}"><h2>Is {} in the transparency log?</h2>'
        '<p class="verdict" aria-live="polite">With a script this page builds the entry from the record, and checks '
        "the proof that the log has it.</p></section>",
        "logged-end" if is_end else "logged", path, protocol, "its end" if is_end else "it",
    )  # fmt: skip


def joined_options(pairs: Iterable[tuple[str, str]]) -> Html:
    """Suggestions for a field: values with their words."""
    return joined(html('<option value="{}">{}</option>', value, seen(words)) for value, words in pairs)
