"""Components of pages: identifiers, states, facts, tables, and the links between pages of a listing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias
from urllib.parse import parse_qsl

from muniment.protocol.wire import DATED_MS_MAX, TIMESTAMP_MS_MAX, iso_time
from muniment.service.console.reading import asked
from muniment.service.http.html.frame import Page, is_for_reader, root_from
from muniment.service.http.html.markup import NOTHING, Html, html, seen, strange
from muniment.service.http.paging import LIMIT_MAX
from muniment.service.http.problems import status_of

if TYPE_CHECKING:
    from muniment.protocol.errors import Invalid
    from muniment.protocol.triggers.types import Trigger
    from muniment.service.console.reading import Listing
    from muniment.service.context import Context
    from muniment.service.http.html.markup import Value
    from muniment.service.http.request import Request

_UNITS: Final = (("day", 86_400_000), ("hour", 3_600_000), ("minute", 60_000), ("second", 1_000))
# Smaller counts are shown in the next smaller unit: 36 hours rather than one day.
_FEW: Final = 2


def relative(timestamp_ms: int, now_ms: int) -> Html:
    """`3 minutes ago` or `in 2 hours`, with the exact time as its title."""
    if timestamp_ms > DATED_MS_MAX:
        return html("<span>{} ms after 1970</span>", timestamp_ms)
    return html(
        '<time datetime="{}" title="{}">{}</time>',
        iso_time(timestamp_ms), absolute(timestamp_ms), relative_words(timestamp_ms, now_ms),
    )  # fmt: skip


_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def dated(timestamp_ms: int, now_ms: int) -> Html:
    """`1 Dec 2026, 09:30 UTC (in 7 days)`, for a time that has room.

    `times.js` keeps times true, and shows them in the reader's zone on demand, in the form that `data-as` names.
    """
    if timestamp_ms > DATED_MS_MAX:
        return html('<span title="{} ms after 1970">after the year 9999</span>', timestamp_ms)
    return html(
        '<time datetime="{}" data-as="dated">{}, {} UTC ({})</time>',
        iso_time(timestamp_ms), _day(timestamp_ms), iso_time(timestamp_ms)[11:16], relative_words(timestamp_ms, now_ms),
    )  # fmt: skip


def until(words: str, then: str, timestamp_ms: int) -> Html:
    """Words that are true until a time, which is to come; after it `times.js` says `then` in their place."""
    if timestamp_ms > DATED_MS_MAX:
        return html("{}", words)
    return html('<span data-until="{}" data-then="{}">{}</span>', iso_time(timestamp_ms), then, words)


def to_the_second(timestamp_ms: int, now_ms: int) -> Html:
    """`1 Dec 2026, 09:30:07`, for steps that are seconds apart."""
    return html(
        '<time datetime="{}" data-as="second" title="{}">{}, {}</time>',
        iso_time(timestamp_ms), relative_words(timestamp_ms, now_ms), _day(timestamp_ms), iso_time(timestamp_ms)[11:19],
    )  # fmt: skip


def _day(timestamp_ms: int) -> str:
    """`1 Dec 2026`."""
    year, month, day = iso_time(timestamp_ms)[:10].split("-")
    return f"{int(day)} {_MONTHS[int(month) - 1]} {year}"


def absolute(timestamp_ms: int) -> str:
    """`2026-11-20 19:48:00 UTC`."""
    if timestamp_ms > DATED_MS_MAX:
        return f"{timestamp_ms} ms after 1970"
    return f"{iso_time(timestamp_ms)[:19].replace('T', ' ')} UTC"


def relative_words(timestamp_ms: int, now_ms: int) -> str:
    """`3 minutes ago` or `in 2 hours`."""
    distance_ms = timestamp_ms - now_ms
    size = abs(distance_ms)
    for name, length in _UNITS:
        count = size // length
        if count >= _FEW or (count and name == "second"):
            words = f"{count:,} {name}{'s' if count > 1 else ''}"
            return f"in {words}" if distance_ms > 0 else f"{words} ago"
    return "now"


# Units of the drawing, which is stretched to the page's width and the style sheet's height.
_WIDTH: Final = 1200
_HEIGHT: Final = 100
# The share of its place that a bar fills.
_FILLED: Final = 0.86
# Bars per time label.
_LABELLED: Final = 6


class Bar(NamedTuple):
    """One bar: its time in milliseconds since 1970, and its counts by kind."""

    at_ms: int
    counts: Mapping[str, int]


def bars(columns: Sequence[Bar], kinds: Sequence[str], *, label: str) -> Html:
    """Stacked bars over time, one colour per kind; the title of a bar has its numbers.

    The drawing is stretched, so its labels are outside of it, in a fixed size.
    """
    highest = max((sum(each.counts.values()) for each in columns), default=0)
    step = _WIDTH / max(len(columns), 1)
    drawn = [_bar(each, kinds, number * step, step, _HEIGHT / max(highest, 1)) for number, each in enumerate(columns)]
    labels = [
        html(
            '<span><time datetime="{}" data-as="clock">{}</time></span>',
            iso_time(each.at_ms), iso_time(each.at_ms)[11:16],
        )
        for each in columns[::_LABELLED]
    ]  # fmt: skip
    return html(
        '<div class="plot"><div class="scale">{}</div><svg viewBox="0 0 {} {}" preserveAspectRatio="none" role="img" '
        'aria-label="{}">{}</svg><div class="scale times">{}</div></div>',
        f"{highest:,}", _WIDTH, _HEIGHT, label, drawn, labels,
    )  # fmt: skip


def _bar(bar: Bar, kinds: Sequence[str], x: float, step: float, scale: float) -> Html:
    """A bar, and an invisible area of the drawing's height with the same title, which is easier to point at."""
    top = float(_HEIGHT)
    pieces: list[Html] = []
    for kind in kinds:
        height = bar.counts.get(kind, 0) * scale
        if height:
            top -= height
            pieces.append(html(
                '<rect class="{}" x="{}" y="{}" width="{}" height="{}"/>',
                kind, f"{x:.1f}", f"{top:.2f}", f"{step * _FILLED:.1f}", f"{height:.2f}",
            ))  # fmt: skip
    words = ", ".join(f"{bar.counts[kind]} {kind}" for kind in kinds if bar.counts.get(kind))
    return html(
        '<g><title>{} UTC: {}</title><rect fill="none" pointer-events="all" x="{}" y="0" width="{}" height="{}"/>{}'
        "</g>",
        absolute(bar.at_ms)[11:16], words or "none", f"{x:.1f}", f"{step:.1f}", _HEIGHT, pieces,
    )  # fmt: skip


# Characters of an address that fill the form again; all filters of a listing have fewer.
_READ_MAX: Final = 2_048


class TextField(NamedTuple):
    """A parameter as text."""

    name: str
    words: str


class ChoiceField(NamedTuple):
    """A parameter with choices: values with their labels."""

    name: str
    words: str
    values: tuple[tuple[str, str], ...]


class TimeField(NamedTuple):
    """A parameter as a time in UTC."""

    name: str
    words: str


Filter: TypeAlias = TextField | ChoiceField | TimeField
# What is wrong with a field in which a browser lets nobody write anything else; for a text the API says it.
_SAID: Final[Mapping[type[Filter], str]] = {
    ChoiceField: "Choose one of these.", TimeField: "Give a date and a time in UTC, such as 2026-11-20T19:48.",
}  # fmt: skip
_NO_FAULTS: Final[Mapping[str, str]] = MappingProxyType({})


def filter_form(request: Request, filters: Sequence[Filter], faults: Mapping[str, str] = _NO_FAULTS) -> Html:
    """The filters as a form, with the values in the address of `request`; folded on a phone while none is used.

    `faults` are sentences by filter.
    """
    given = dict(parse_qsl(request.query[:_READ_MAX].decode("latin-1")))
    is_used = any(given.get(each.name) for each in filters)
    return html(
        '<details class="filters"{}><summary>Filter</summary><form aria-label="Filter"><div class="fields">{}{}'
        '<div class="send"><button>Filter</button>{}</div></div></form></details>',
        html(" open") if is_used else NOTHING,
        [_field(each, given, faults.get(each.name, "")) for each in filters],
        html('<input type="hidden" name="sort" value="1">') if _is_oldest_first(request) else None,
        html(' <a class="button" href="?">All</a>') if is_used else None,
    )


def _field(each: Filter, given: Mapping[str, str], fault: str) -> Html:
    value, wrong = given.get(each.name, ""), NOTHING
    if fault:
        wrong = html(' aria-invalid="true" aria-describedby="fault-{}"', each.name)
    if isinstance(each, TimeField) and not fault:
        box = html('<input type="datetime-local" step="any" name="{}" value="{}"{}>', each.name, _as_time(value), wrong)
    elif isinstance(each, (TextField, TimeField)):  # a field for times refuses to show a wrong one
        box = html('<input name="{}" value="{}" spellcheck="false" autocomplete="off"{}>', each.name, value, wrong)
    else:
        options = [
            html('<option value="{}"{}>{}</option>', key, html(" selected") if key == value else NOTHING, words)
            for key, words in (("", "any"), *each.values)
        ]
        box = html('<select name="{}"{}>{}</select>', each.name, wrong, options)
    words = _SAID.get(type(each)) or fault
    told = html('<small class="bad" id="fault-{}">{}</small>', each.name, strange(words)) if fault else None
    return html("<label><span>{}</span>{}{}</label>", each.words, box, told)


def _as_time(value: str) -> str:
    """A time for a field of a browser; links may have it in milliseconds."""
    if not value.isascii() or not value.isdecimal() or len(value) > len(str(TIMESTAMP_MS_MAX)):
        return value
    return iso_time(int(value))[:-1] if int(value) <= DATED_MS_MAX else ""


# The path of a listing, the events of the change feed that may add a row to it, and the member that names a row.
_FOLLOWED: Final = {
    "functions": ("functions", "function.created", "CID"),
    "triggers": ("triggers", "trigger.created", "sig"),
    "intents": ("intents", "intent.created", "hash"),
    "runs": ("executions", "execution.recorded", "hash"),
}
# Parameters that a query for newer rows sets itself.
_PLACE: Final = frozenset({"cursor", "offset", "limit", "sort", "generation"})
# Characters at both ends of a shortened identifier: enough that two do not look alike by chance.
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


def command(words: Html) -> Html:
    """A command with a button that copies it."""
    return html(
        '<div class="code"><pre>{}</pre><button type="button" class="copy" aria-label="Copy the command"></button>'
        "</div>",
        words,
    )


def state(word: str) -> Html:
    """A state as a word with a dot, coloured by the style sheet."""
    return html('<span class="state {}">{}</span>', word, word)


def facts(pairs: Iterable[tuple[str, Html | None]]) -> Html:
    """Names with values, one below the other, without empty ones."""
    return html(
        '<dl class="facts">{}</dl>', [html("<dt>{}<dd>{}", name, value) for name, value in pairs if value is not None]
    )


def table(
    names: Sequence[str],
    rows: Iterable[Sequence[Value]],
    *,
    label: str,
    numbers: Sequence[str] = (),
    is_list: bool = False,
) -> Html:
    """A table, which phones show as cards: a line for each cell, or a few lines of a row of a list.

    The columns in `numbers` are right-aligned.
    """
    heads = [
        html('<th scope="col"{}>{}', html(' class="number"') if name in numbers else NOTHING, name) for name in names
    ]
    body = [html("<tr>{}", [_cell(name, cell, numbers) for name, cell in zip(names, row, strict=True)]) for row in rows]
    kind = "cards list" if is_list else "cards"
    return html('<table class="{}" aria-label="{}"><thead><tr>{}<tbody>{}</table>', kind, label, heads, body)


def _cell(name: str, content: Value, numbers: Sequence[str]) -> Html:
    mark = html(' class="number"') if name in numbers else NOTHING
    return html('<td data-name="{}"{}><span>{}</span>', name, mark, content)


def link(href: str, words: str) -> Html:
    """A link at the end of a heading's line."""
    return html('<a href="{}">{}</a>', href, words)


def note(trigger: Trigger) -> Html:
    """What the signer's client says of a trigger, as the text of others."""
    return html(
        '<p class="said">“{}” <span class="faint">Note by the signer’s client, not signed.</span></p>',
        strange(trigger.description),
    )


def action(href: str, words: str) -> Html:
    """A link that looks like a button: the main action of the page."""
    return html('<a class="button first" href="{}">{}</a>', href, words)


def heading(words: Value, *, end: Html = NOTHING, level: int = 2) -> Html:
    """A heading with something at the end of its line."""
    title = html("<h1>{}</h1>", words) if level == 1 else html("<h2>{}</h2>", words)
    return html('<div class="line">{}{}</div>', title, end)


def _without_place(request: Request, *names: str) -> list[str]:
    """The parameters of an address without the cursor and without `names`."""
    left_out = {"", "cursor", *names}
    return [
        part
        for part in request.query[:_READ_MAX].decode("latin-1").split("&")
        if part.partition("=")[0] not in left_out
    ]  # fmt: skip


def _is_oldest_first(request: Request) -> bool:
    return b"sort=1" in request.query[:_READ_MAX].split(b"&")


def pages(request: Request, following: str) -> Html:
    """The links to the following and to the first rows of the listing at the address of `request`."""
    parts, links = _without_place(request), list[Html]()
    first, next_ = ("Oldest", "Newer") if _is_oldest_first(request) else ("Newest", "Older")
    if is_later_page(request):
        links.append(html('<a class="button" href="?{}">{}</a>', "&".join(parts), first))
    if following:
        further = "&".join([*parts, f"cursor={following}"])
        links.append(html('<a class="button" href="?{}" rel="next">{}</a>', further, next_))
    return html('<nav class="pages" aria-label="Pages">{}</nav>', links) if links else NOTHING


def _order(request: Request, kind: str, found: Listing) -> Html:
    """How many rows there are, as far as this page tells, and the link to the other order of arrival."""
    parts, is_oldest_first = _without_place(request, "sort"), _is_oldest_first(request)
    shown = len(found.records)
    if is_later_page(request):
        words = f"{shown} more"
    elif found.next:
        words = f"The {'oldest' if is_oldest_first else 'newest'} {shown}"
    else:
        words = f"{shown} {kind if shown != 1 else kind.removesuffix('s')}"
    order, other = ("&".join(parts), "Newest") if is_oldest_first else ("&".join([*parts, "sort=1"]), "Oldest")
    return html('<p class="faint order">{} · <a href="?{}">{} first</a></p>', words, order, other) if shown else NOTHING


def listing_page(
    request: Request, kind: str, found: Listing, filters: Sequence[Filter], rows: Html, *, end: Html = NOTHING
) -> Page:
    """The page of a listing: filters, `rows`, links to other pages; `end` is at the end of the line of its title."""
    title, generation = kind.capitalize(), "?generation=all" if kind == "intents" else ""
    body = html(
        "{}{}{}{}{}",
        heading(title, end=end, level=1),
        filter_form(request, filters),
        _order(request, kind, found),
        live(kind, found.prev, rows, request),
        pages(request, found.next),
    )
    path = f"{root_from(request.path)}{_FOLLOWED[kind][0]}{generation}"
    return Page(title, body, kind, path, ("live.js",))


def refused_listing(request: Request, kind: str, filters: Sequence[Filter], refusal: Invalid) -> Page:
    """The page of a listing whose address has a wrong filter: the form, with what is wrong beside its field.

    Raises `refusal` to a program, and if it is about no filter.
    """
    accept = next(iter(request.headers(b"accept")), "")
    names = {each.name for each in filters}
    faults = {each.parameter: each.detail for each in refusal.faults if each.parameter in names}
    if not faults or not is_for_reader(request.path, accept):
        raise refusal
    request.refused = refusal.code
    body = html(
        '<h1>{}</h1><p class="note" role="alert">Nothing is listed: a filter has a value that does not fit. Correct '
        "it, or empty the field.</p>{}",
        kind.capitalize(), filter_form(request, filters, faults),
    )  # fmt: skip
    return Page(kind.capitalize(), body, kind, status=status_of(type(refusal)))


def is_later_page(request: Request) -> bool:
    """Whether the address names a later page of a listing."""
    return any(part.startswith(b"cursor=") for part in request.query[:_READ_MAX].split(b"&"))


def live(kind: str, cursor: str, rows: Html, request: Request) -> Html:
    """The rows of a listing, with the data for a script that announces newer rows on a first page."""
    if is_later_page(request) or not cursor:  # oldest first there is no cursor: newer rows belong to the end
        return rows
    path, types, name = _FOLLOWED[kind]
    given = asked(request).decode("ascii", "replace").split("&")
    kept = [part for part in given if part and part.partition("=")[0] not in _PLACE]
    generation = ["generation=all"] if kind == "intents" else []
    query = "&".join([*kept, *generation, "sort=1", f"limit={LIMIT_MAX}", f"cursor={cursor}"])
    return html(
        '<div id="newer" class="newer" aria-live="polite"></div>'
        '<div id="rows" data-path="{}?{}" data-name="{}" data-types="{}">{}</div>',
        path, query, name, "" if request.context.settings.feed == "off" else types, rows,
    )  # fmt: skip


def logged(context: Context, path: str, protocol: str = "", *, is_end: bool = False) -> Html:
    """The place for the log proof of the record at `path` of the API, which needs a script.

    `is_end`: the record is the deactivation of the trigger that the page shows.
    """
    if not context.settings.tlog_name:
        return NOTHING
    return html(
        '<section class="check" id="{}" data-path="{}" data-protocol="{}"><h2>Is {} in the transparency log?</h2>'
        '<p class="verdict" aria-live="polite">With a script this page builds the entry from the record, and checks '
        "the proof that the log has it.</p></section>",
        "logged-end" if is_end else "logged", path, protocol, "its end" if is_end else "it",
    )  # fmt: skip


def badge(words: str, details: Html) -> Html:
    """A word for a check, which a script completes with what it found; the check itself is folded."""
    return html(
        '<details class="badge"><summary>{} <span class="found">not checked</span></summary>{}</details>',
        words,
        details,
    )


def options(pairs: Iterable[tuple[str, str]]) -> Html:
    """Suggestions for a field: values with their labels."""
    return html("{}", [html('<option value="{}">{}</option>', value, seen(words)) for value, words in pairs])
