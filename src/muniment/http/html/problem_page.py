"""A problem as a page, for a person who opened an address of the console."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from muniment.http.accept import media_ranges, named_quality
from muniment.http.html.frame import Page, plain
from muniment.http.html.markup import html, strange
from muniment.http.problems import problem_headers, status_of
from muniment.http.reply import NO_STORE

if TYPE_CHECKING:
    from muniment.errors import Fault, Refusal
    from muniment.http.html.markup import Html
    from muniment.http.reply import Headers, Ready

# Slashes of a path. Those of the console's own pages have at most five.
_DEPTH_MAX: Final = 16


def is_for_reader(path: str, accept: str) -> bool:
    """Whether a request asks for a page of the console, as browsers do for a followed link.

    A path that is deeper than all pages gets no page: each of its links would have to lead up all the way.
    """
    if (path != "/console" and not path.startswith("/console/")) or path.count("/") > _DEPTH_MAX:
        return False
    return named_quality(media_ranges([accept]), "text/html") > 0


def problem_page(refusal: Refusal, request_id: str, root: str, headers: Headers = ()) -> Ready[bytes]:
    """`refusal` as a page with the same status and header fields as its problem document."""
    status = status_of(type(refusal))
    body = html(
        '<h1>{}</h1><p>{}</p>{}<dl class="facts"><dt>Status<dd>{}<dt>Code<dd><a href="{}errors/{}"><code>{}</code></a>'
        '<dt>Request<dd><code>{}</code></dl><p><a href="{}console">To the overview</a></p>',
        refusal.title, strange(refusal.detail), _faults(refusal),
        status, root, refusal.code, refusal.code, request_id, root,
    )  # fmt: skip
    fields = (*problem_headers(refusal, status), NO_STORE, *headers)
    return plain(Page(refusal.title, body), root, has_console=True, status=status, headers=fields)


def _faults(refusal: Refusal) -> Html | None:
    """The faults and their places, unless the detail is the whole story."""
    rows = [_fault(each) for each in refusal.faults if each.detail != refusal.detail or len(refusal.faults) > 1]
    return html("<ul>{}</ul>", rows) if rows else None


def _fault(fault: Fault) -> Html:
    place = fault.pointer or fault.parameter
    return html("<li>{}{}", html("<code>{}</code>: ", place) if place else None, strange(fault.detail))
