"""The form with which a reader narrows a listing. It is sent by GET: the address of a page says all that it shows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias
from urllib.parse import parse_qsl

from muniment.console.times import DATED_MS_MAX
from muniment.http.html.markup import NOTHING, Html, html
from muniment.wire import TIMESTAMP_MS_MAX, iso_time

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from muniment.http.request import Request

# Characters of an address whose fields are filled in again; all filters of a listing together have fewer.
_READ_MAX: Final = 2_048


class Field(NamedTuple):
    """A parameter that is typed."""

    name: str
    words: str


class Choice(NamedTuple):
    """A parameter that is chosen: values with their words."""

    name: str
    words: str
    values: tuple[tuple[str, str], ...]


class Moment(NamedTuple):
    """A parameter that is a time in UTC."""

    name: str
    words: str


Filter: TypeAlias = Field | Choice | Moment


def filter_form(request: Request, filters: Sequence[Filter]) -> Html:
    """The filters as a form, with the values in the address of `request`."""
    given = dict(parse_qsl(request.query[:_READ_MAX].decode("latin-1")))
    is_used = any(given.get(each.name) for each in filters)
    return html(
        '<form class="filters" aria-label="Filter"><div class="fields">{}'
        '<div class="send"><button>Filter</button>{}</div></div></form>',
        [_field(each, given) for each in filters],
        html(' <a class="button" href="?">All</a>') if is_used else None,
    )


def _field(each: Filter, given: Mapping[str, str]) -> Html:
    value = given.get(each.name, "")
    if isinstance(each, Moment):
        box = html('<input type="datetime-local" step="any" name="{}" value="{}">', each.name, _as_time(value))
    elif isinstance(each, Field):
        box = html('<input name="{}" value="{}" spellcheck="false" autocomplete="off">', each.name, value)
    else:
        options = [
            html('<option value="{}"{}>{}</option>', key, html(" selected") if key == value else NOTHING, words)
            for key, words in (("", "any"), *each.values)
        ]
        box = html('<select name="{}">{}</select>', each.name, options)
    return html("<label><span>{}</span>{}</label>", each.words, box)


def _as_time(value: str) -> str:
    """A time as a field of a browser takes it; links of the API's users have it in milliseconds."""
    if not value.isascii() or not value.isdecimal() or len(value) > len(str(TIMESTAMP_MS_MAX)):
        return value
    return iso_time(int(value))[:-1] if int(value) <= DATED_MS_MAX else ""
