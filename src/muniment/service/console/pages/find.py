"""The search box: an identifier leads to its page."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qs, unquote

from muniment.protocol.errors import FunctionNotFound, Invalid, TriggerNotFound
from muniment.protocol.evm.address import Address
from muniment.protocol.evm.hex import Bytes32
from muniment.protocol.evm.signature import Signature
from muniment.protocol.ipfs.cid import Cid
from muniment.service.console.page import COST, assets
from muniment.service.context import Context
from muniment.service.http.html.frame import Page, framed, root_from
from muniment.service.http.html.markup import NOTHING, Html, html, strange
from muniment.service.http.operation import operation
from muniment.service.http.reply import Ready
from muniment.service.http.request import Request
from muniment.service.resources.functions.routes import get_function
from muniment.service.resources.intents.reading.finding import find_by_hash
from muniment.service.resources.triggers.routes import get_trigger
from muniment.service.running.limits.costs import Shed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

# A pasted URL of 2,000 characters, percent-encoded: long enough for a page of this console on any host.
_LENGTH_MAX: Final = 6_000
_PARTS: Final = re.compile(r"[^0-9A-Za-z]+")
_ADDRESS, _HASH, _SIGNATURE = 40, 64, 130
_HEX: Final = re.compile(r"(?:0x)?([0-9a-fA-F]+)")
_CID_LENGTH_MIN: Final = 46


@operation("GET", "/console/find", cost=COST, sheds=Shed.PAGE)
async def find(context: Context, request: Request) -> Ready[bytes]:
    """Redirect to the page of the identifier in `q`, or report what it looks like."""
    root = root_from(request.path)
    given = parse_qs(request.query[:_LENGTH_MAX].decode("ascii", "replace")).get("q", [""])[0].strip()
    for part in reversed([each for each in _PARTS.split(unquote(given)) if each]):
        if (look := _look_for(part)) is None:
            continue
        taken_for, find_path = look
        path = await find_path(context, request, part)
        if path is not None:
            return Ready(b"", ((b"location", f"{root}console/{path}".encode()), (b"cache-control", b"no-store")), 303)
        return _page(request, given, html("<p>{} looks like {}, but is not known here.</p>", strange(part), taken_for))
    words = html("<p>{} is no signature, hash, address or CID.</p>", strange(given)) if given else NOTHING
    return _page(request, given, words)


def _page(request: Request, given: str, words: Html) -> Ready[bytes]:
    body = html(
        '<h1>Find</h1><div aria-live="polite">{}</div><form action="find"><label><span>A signature, a CID, a hash, an '
        'address, or a URL with one of them</span><input name="q" type="search" value="{}" class="long" '
        'spellcheck="false" autocomplete="off" autocapitalize="off"></label><p><button class="first">Find</button></p>'
        "</form><h2>What is found</h2><ul><li>130 hex digits: a trigger<li>64 hex digits: an intent, or the intent of "
        "a proposal or of a transaction that a relayer has named<li>40 hex digits: an address<li>a CID in either "
        "version: a function</ul>",
        words, given,
    )  # fmt: skip
    return framed(Page("Find", body), root_from(request.path), assets(), 200)


def _look_for(part: str) -> tuple[str, Callable[[Context, Request, str], Awaitable[str | None]]] | None:
    """The kind of identifier that a part of the text looks like, and its look-up; None for any other part."""
    if digits := _HEX.fullmatch(part):
        length = len(digits[1])
        if length == _SIGNATURE:
            return "a signature", _find_trigger
        if length == _HASH:
            return "a hash", _find_hash
        if length == _ADDRESS:
            return "an address", _find_address
    return ("a CID", _find_function) if len(part) >= _CID_LENGTH_MIN else None


async def _find_trigger(context: Context, request: Request, part: str) -> str | None:
    try:
        sig = Signature.parse(_prefixed(part))
        await get_trigger.handler(context, request, sig)
    except (Invalid, TriggerNotFound):
        return None
    return f"triggers/{sig}"


async def _find_hash(context: Context, request: Request, part: str) -> str | None:
    found = await find_by_hash(context.reader_for(request), Bytes32.parse(_prefixed(part).lower()).raw)
    return f"intents/{Bytes32.from_raw(found)}" if found else None


async def _find_address(_: Context, __: Request, part: str) -> str | None:
    text = _prefixed(part)
    try:
        return f"addresses/{Address.parse(text)}"
    except Invalid:  # a wrong EIP-55 checksum: typed by hand, or of another chain's rules
        return f"addresses/{Address.parse(text.lower())}"


async def _find_function(context: Context, request: Request, part: str) -> str | None:
    try:
        cid = Cid.parse(part)
        await get_function.handler(context, request, cid)
    except (Invalid, FunctionNotFound):
        return None
    return f"functions/{cid}"


def _prefixed(digits: str) -> str:
    return digits if digits.startswith("0x") else f"0x{digits}"
