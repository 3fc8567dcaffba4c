"""The frame around every page, which needs no script to be read, and problems as pages."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Final, NamedTuple

from muniment.service.http.html.markup import NOTHING, Html, html, strange, style_element
from muniment.service.http.problems import problem_headers, status_of
from muniment.service.http.reply import NO_STORE, Ready
from muniment.service.http.request import media_ranges, named_quality

if TYPE_CHECKING:
    from muniment.protocol.errors import Fault, Refusal
    from muniment.service.http.assets import Assets
    from muniment.service.http.reply import Headers

# The pages of the console that every page leads to: section, path from the root of the service, words.
_SECTIONS: Final = (
    ("overview", "console", "Overview"),
    ("functions", "console/functions", "Functions"),
    ("triggers", "console/triggers", "Triggers"),
    ("runs", "console/runs", "Runs"),
    ("intents", "console/intents", "Intents"),
    ("account", "console/account", "Account"),
)
_REFERENCE: Final = ("docs", "docs", "API")
_SEAL: Final = html(
    '<svg viewBox="0 0 20 20" aria-hidden="true"><path fill-rule="evenodd" d="M10 0a10 10 0 0 1 0 20a10 10 0 0 1 0-20z'
    'M5.5 13.5h1.8V9.2l2 3h1.4l2-3v4.3h1.8v-7h-1.7L10 10 7.2 6.5H5.5z"/></svg>'
)
# The seal as the page's icon: a request for /favicon.ico would be refused.
_ICON: Final = (
    "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 20 20'%3E%3Ccircle cx='10' cy='10' "
    "r='10' fill='%238a1f2b'/%3E%3Cpath d='M5.5 13.5h1.8V9.2l2 3h1.4l2-3v4.3h1.8v-7h-1.7L10 10 7.2 6.5H5.5z' "
    "fill='white'/%3E%3C/svg%3E"
)
# It opens the sections, which a narrow window shows on demand. No script is needed.
_MENU: Final = html('<button type="button" class="menu-button" popovertarget="sections">Menu</button>')
# A script listens to it: it changes what times are shown in.
_ZONE: Final = html(' <button type="button" id="zone" class="text">Show local times</button>')
# Features that a page may not use, and no referrer for the pages that it links to.
_HEADERS: Final = (
    (b"content-type", b"text/html; charset=utf-8"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=(), payment=(), usb=(), serial=()"),
)
# Trusted Types: no text becomes markup or script, whatever a script of ours does wrong.
_WITH_SCRIPTS: Final = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    b"form-action 'self'; base-uri 'none'; frame-ancestors 'none'; "
    b"require-trusted-types-for 'script'; trusted-types 'none'"
)
_WITHOUT_SCRIPTS: Final = (
    b"default-src 'none'; style-src '%b'; img-src data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'; "
    b"require-trusted-types-for 'script'; trusted-types 'none'"
)


# A browser asks again before it shows a page that it has kept.
_REVALIDATED: Final = (b"cache-control", b"no-cache")


class Page(NamedTuple):
    """A page before its frame is around it. Paths in it are relative to the page."""

    title: str
    body: Html
    # Which link above is the page's own; empty for none.
    section: str = ""
    # Where a program reads the same; empty where no operation answers it.
    json: str = ""
    # The modules that the page runs besides the frame's own.
    scripts: tuple[str, ...] = ()
    # The style sheets that the page has besides those of all pages.
    styles: tuple[str, ...] = ()
    status: int = 200


def root_from(path: str) -> str:
    """The way from the page at `path` to the root of the service, for links.

    All links are relative, so that a proxy may serve the registry under a path of its own.
    """
    return "../" * (path.count("/") - 1) or "./"


def framed(
    page: Page, root: str, assets: Assets, status: int = 200, headers: Headers = (_REVALIDATED,)
) -> Ready[bytes]:  # fmt: skip
    """A page of the console, `root` being the way to the root of the service; `headers` say how long it is kept."""
    at = f"{root}{assets.path}/"
    has_times = "<time" in page.body
    scripts = ("frame.js", *(("times.js",) if has_times else ()), *page.scripts)
    modules = [name for script in scripts for name in (script, *assets.imports.get(script, ()))]
    head = html("{}", [
        *(html('<link rel="stylesheet" href="{}{}">', at, name) for name in (*assets.styles, *page.styles)),
        *(html('<link rel="modulepreload" href="{}{}">', at, name) for name in dict.fromkeys(modules)),
        *(html('<script type="module" src="{}{}"></script>', at, name) for name in scripts),
    ])  # fmt: skip
    fields = (*_HEADERS, (b"content-security-policy", _WITH_SCRIPTS), *headers)
    foot = _foot(page, root, assets.release, has_console=True, zone=_ZONE if has_times else NOTHING)
    return Ready(_document(page, root, head, foot, has_console=True, notice=assets.notice), fields, status)


def plain(page: Page, root: str, style: str = "") -> Ready[bytes]:
    """A page of a service without a console: it runs no script and asks for no file.

    `style` is what it has besides the frame's style sheet.
    """
    element, digest = _inline_style(style)
    fields = (*_HEADERS, (b"content-security-policy", _WITHOUT_SCRIPTS % digest))
    return Ready(_document(page, root, element, _foot(page, root, "", has_console=False), has_console=False), fields)


def style_sheet() -> bytes:
    """The style of the frame."""
    return (files("muniment.service.http.html") / "frame.css").read_bytes()


@cache
def _inline_style(style: str) -> tuple[Html, bytes]:
    """The style for a page without files, and the hash by which its Content-Security-Policy allows it."""
    sheet = style_sheet() + style.encode()
    return style_element(sheet.decode()), b"sha256-" + base64.b64encode(hashlib.sha256(sheet).digest())


def _document(page: Page, root: str, head: Html, foot: Html, *, has_console: bool, notice: str = "") -> bytes:
    links = (*_SECTIONS, _REFERENCE) if has_console else (_REFERENCE,)
    return html(
        '<!doctype html><html lang="en" data-root="{}"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><title>{}</title>'
        '<link rel="icon" href="{}">{}</head><body><a class="skip" href="#page">To the page</a>'
        '<header class="{}">{}<a class="brand" href="{}{}" aria-label="Muniment">{}<span>Muniment</span></a>'
        '<nav id="sections" aria-label="Sections"{}>{}</nav>{}</header>{}'
        '<main id="page" tabindex="-1">{}</main>{}</body></html>\n',
        root, f"{page.title} · Muniment", _ICON, head,
        "top console" if has_console else "top", _MENU if has_console else None,
        root, "console" if has_console else "docs", _SEAL,
        html(" popover") if has_console else None, [_link(root, page.section, *each) for each in links],
        _find(root) if has_console else None,
        html('<p class="notice">{}</p>', notice) if notice else None, page.body, foot,
    ).encode()  # fmt: skip


def _foot(page: Page, root: str, release: str, *, has_console: bool, zone: Html = NOTHING) -> Html:
    return html(
        '<footer>{}{}<span><span id="zone-words">Times are UTC.</span>{}</span>{}</footer>',
        html('<a href="{}">JSON</a>', page.json) if page.json else None,
        html('<a href="{}console/service">This service</a>', root) if has_console else None,
        zone,
        html("<span>{}</span>", release) if release else None,
    )


def _link(root: str, current: str, section: str, path: str, words: str) -> Html:
    mark = html(' aria-current="page"') if section == current else NOTHING
    return html('<a href="{}{}"{}>{}</a>', root, path, mark, words)


def _find(root: str) -> Html:
    return html(
        '<search class="find"><form action="{}console/find"><input type="search" name="q" aria-label="Find" '
        'placeholder="Name, address, hash, CID  /" autocomplete="off" spellcheck="false" maxlength="2000">'
        '</form></search><div class="account" id="wallet"></div>',
        root,
    )


# Slashes of a path. Those of the console's own pages have at most five.
_DEPTH_MAX: Final = 16


def is_for_reader(path: str, accept: str) -> bool:
    """Whether a request asks for a page of the console, as browsers do for a followed link.

    A path that is deeper than all pages gets no page: each of its links would have to lead up all the way.
    """
    if (path != "/console" and not path.startswith("/console/")) or path.count("/") > _DEPTH_MAX:
        return False
    return named_quality(media_ranges([accept]), "text/html") > 0


def problem_page(
    refusal: Refusal, request_id: str, root: str, assets: Assets, headers: Headers = ()
) -> Ready[bytes]:  # fmt: skip
    """`refusal` as a page with the same status and header fields as its problem document."""
    status = status_of(type(refusal))
    body = html(
        '<h1>{}</h1><p>{}</p>{}<dl class="facts"><dt>Status<dd>{}<dt>Code<dd><a href="{}errors/{}"><code>{}</code></a>'
        '<dt>Request<dd><code>{}</code></dl><p><a href="{}console">To the overview</a></p>',
        refusal.title, strange(refusal.detail), _faults(refusal),
        status, root, refusal.code, refusal.code, request_id, root,
    )  # fmt: skip
    fields = (*problem_headers(refusal, status), NO_STORE, *headers)
    return framed(Page(refusal.title, body), root, assets, status, fields)


def _faults(refusal: Refusal) -> Html | None:
    """The faults and their places, unless the detail is the whole story."""
    rows = [_fault(each) for each in refusal.faults if each.detail != refusal.detail or len(refusal.faults) > 1]
    return html("<ul>{}</ul>", rows) if rows else None


def _fault(fault: Fault) -> Html:
    place = fault.pointer or fault.parameter
    return html("<li>{}{}", html("<code>{}</code>: ", place) if place else None, strange(fault.detail))
