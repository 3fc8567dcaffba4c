"""The search box: what an identifier, the beginning of one, or the name of a function leads to."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import parse_qs, unquote

from muniment.protocol.errors import FunctionNotFound, Invalid, RunNotFound, TriggerNotFound
from muniment.protocol.evm.address import Address
from muniment.protocol.evm.hex import Bytes32
from muniment.protocol.evm.signature import Signature
from muniment.protocol.functions.types import Function, NamePrefix
from muniment.protocol.intents.lifecycle import Moment
from muniment.protocol.ipfs.cid import Cid
from muniment.protocol.runs.types import Run
from muniment.protocol.triggers.types import Trigger
from muniment.service.console import beside, reading, rows
from muniment.service.console.page import COST, assets
from muniment.service.console.parts import heading, identifier
from muniment.service.context import Context
from muniment.service.http.html.frame import Page, framed, root_from
from muniment.service.http.html.markup import NOTHING, Html, html, strange
from muniment.service.http.operation import operation
from muniment.service.http.reply import Ready
from muniment.service.http.request import Request
from muniment.service.resources.functions.routes import list_functions
from muniment.service.resources.functions.store import FunctionQuery
from muniment.service.resources.intents import store as intents
from muniment.service.resources.runs import store as runs
from muniment.service.resources.runs.routes import get_run
from muniment.service.resources.triggers import store as triggers
from muniment.service.resources.triggers.listing import TriggerQuery
from muniment.service.resources.triggers.routes import get_trigger, list_triggers
from muniment.service.running.limits.costs import Shed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

# A pasted URL of 2,000 characters, percent-encoded: long enough for a page of this console on any host.
_LENGTH_MAX: Final = 6_000
_PARTS: Final = re.compile(r"[^0-9A-Za-z]+")
_ADDRESS, _HASH, _SIGNATURE = 40, 64, 130
_HEX: Final = re.compile(r"(?:0x)?([0-9a-fA-F]+)")
_CID_LENGTH_MIN: Final = 46
# Hex digits that are taken for the beginning of an identifier: with fewer, many would have it by chance.
_PREFIX_MIN: Final = 6
# Records of each kind that a beginning finds.
_FOUND_MAX: Final = 5


@operation("GET", "/console/find", cost=COST, sheds=Shed.PAGE)
async def find(context: Context, request: Request) -> Ready[bytes]:
    """Redirect to the page of what `q` names, list several, or report what it looks like."""
    root = root_from(request.path)
    given = parse_qs(request.query[:_LENGTH_MAX].decode("ascii", "replace")).get("q", [""])[0].strip()
    words = html("<p>{} is no signature, hash, address or CID.</p>", strange(given)) if given else NOTHING
    for part in reversed([each for each in _PARTS.split(unquote(given)) if each]):
        if (look := _look_for(part)) is None:
            continue
        taken_for, find_path = look
        path = await find_path(context, request, part)
        if path is not None:
            return _redirect(root, path)
        words = html("<p>{} looks like {}, but is not known here.</p>", strange(part), taken_for)
        break
    found = await _search(context, request, given)
    if len(found.paths) == 1:
        return _redirect(root, found.paths[0])
    if not found.paths and given:
        words = html("{}<p>No function has a name that begins so.</p>", words)
    return _page(request, given, found.shown if found.paths else words)


def _redirect(root: str, path: str) -> Ready[bytes]:
    return Ready(b"", ((b"location", f"{root}console/{path}".encode()), (b"cache-control", b"no-store")), 303)


def _page(request: Request, given: str, words: Html) -> Ready[bytes]:
    body = html(
        '<h1>Find</h1><form action="find"><label><span>The name of a function, a signature, a hash, an address or the '
        'beginning of one, a CID, or a URL</span><input name="q" type="search" value="{}" class="long" '
        'spellcheck="false" autocomplete="off" autocapitalize="off"></label><p><button class="first">Find</button></p>'
        '</form><div aria-live="polite">{}</div><h2>What is found</h2><ul><li>a name, or its beginning: functions<li>'
        "130 hex digits: a trigger<li>64 hex digits: an intent, a run, or the intent of a proposal or of a transaction "
        "that a relayer has named<li>40 hex digits: an address<li>the first hex digits of any of these, at least {}<li>"
        "a CID in either version: a function</ul>",
        given, words, _PREFIX_MIN,
    )  # fmt: skip
    return framed(Page("Find", body), root_from(request.path), request.assets or assets(), 200)


class _Found(NamedTuple):
    """The pages that a search leads to, and a table of each kind."""

    paths: list[str]
    shown: Html


async def _search(context: Context, request: Request, given: str) -> _Found:
    """Functions by the beginning of their name; triggers, intents, runs and signers by that of their identifier."""
    found = [await _by_name(context, request, given)]
    if (digits := _HEX.fullmatch(given)) and len(digits[1]) >= _PREFIX_MIN:
        prefix = digits[1].lower()
        for most, search in _BY_PREFIX:
            if len(prefix) <= most:
                found.append(await search(context, request, prefix))
    return _Found([path for each in found for path in each.paths], html("{}", [each.shown for each in found]))


async def _by_name(context: Context, request: Request, given: str) -> _Found:
    try:
        name = NamePrefix.parse(given)
    except Invalid:
        return _Found([], NOTHING)
    query = FunctionQuery(name=name, limit=reading.ROWS)
    listed: list[Function] = (await reading.listing(list_functions, context, request, query, Function)).records
    if not listed:
        return _Found([], NOTHING)
    root, now_ms = root_from(request.path), context.clock.now_ms()
    signed = await beside.signed(context, listed)
    table = rows.functions(listed, root, now_ms, signed=signed, none="")
    return _Found([f"functions/{each.cid}" for each in listed], _titled("Functions", table))


async def _triggers(context: Context, request: Request, prefix: str) -> _Found:
    raw = await triggers.find_by_prefix(context.list_reader(), prefix, _FOUND_MAX)
    if not raw:
        return _Found([], NOTHING)
    query = TriggerQuery(sigs=[Signature.parse(f"0x{each.hex()}") for each in raw], limit=_FOUND_MAX)
    listed = (await reading.listing(list_triggers, context, request, query, Trigger)).records
    known = await beside.of_triggers(context, request, listed)
    table = rows.triggers(listed, root_from(request.path), context.clock.now_ms(), beside=known, none="")
    return _Found([f"triggers/{each.sig}" for each in listed], _titled("Triggers", table))


async def _intents(context: Context, request: Request, prefix: str) -> _Found:
    reader = context.list_reader()
    raw = await intents.find_by_prefix(reader, prefix, _FOUND_MAX)
    if not raw:
        return _Found([], NOTHING)
    moment = Moment(context.clock.now_ms(), context.settings.settlement_grace_s)
    records = await intents.listed(reader, [await intents.find(reader, each, moment) for each in raw])
    listed = [reading.intent(each.encode()) for each in records]
    known = await beside.of_intents(context, request, listed)
    table = rows.intents(listed, root_from(request.path), moment.now_ms, beside=known, none="")
    return _Found([f"intents/{each.hash}" for each in listed], _titled("Intents", table))


async def _runs(context: Context, request: Request, prefix: str) -> _Found:
    raw = await runs.find_by_prefix(context.list_reader(), prefix, _FOUND_MAX)
    if not raw:
        return _Found([], NOTHING)
    listed = [await reading.record(get_run, context, request, Bytes32.from_raw(each), Run) for each in raw]
    known = await beside.of_runs(context, request, listed)
    table = rows.runs(listed, root_from(request.path), context.clock.now_ms(), none="", beside=known)
    return _Found([f"runs/{each.hash}" for each in listed], _titled("Runs", table))


async def _signers(context: Context, request: Request, prefix: str) -> _Found:
    raw = await triggers.signers_by_prefix(context.list_reader(), prefix, _FOUND_MAX)
    signers = [Address.from_raw(each) for each in raw]
    if not signers:
        return _Found([], NOTHING)
    root = root_from(request.path)
    lines = [html("<li>{}", identifier(each, f"{root}console/addresses/{each}", whole=True)) for each in signers]
    return _Found([f"addresses/{each}" for each in signers], _titled("Signers", html("<ul>{}</ul>", lines)))


# With the number of hex digits that each has.
_BY_PREFIX: Final = ((_SIGNATURE, _triggers), (_HASH, _intents), (_HASH, _runs), (_ADDRESS, _signers))


def _titled(title: str, shown: Html) -> Html:
    return html("{}{}", heading(title), shown)


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
    hash_ = Bytes32.parse(_prefixed(part).lower())
    found = await intents.find_by_hash(context.database, hash_.raw)
    if found is not None:
        return f"intents/{Bytes32.from_raw(found)}"
    try:
        await get_run.handler(context, request, hash_)
    except RunNotFound:
        return None
    return f"runs/{hash_}"


async def _find_address(_: Context, __: Request, part: str) -> str | None:
    text = _prefixed(part)
    try:
        return f"addresses/{Address.parse(text)}"
    except Invalid:  # a wrong EIP-55 checksum: typed by hand, or of another chain's rules
        return f"addresses/{Address.parse(text.lower())}"


async def _find_function(context: Context, _: Request, part: str) -> str | None:
    try:
        cid = Cid.parse(part)
        await reading.function(context, cid)
    except (Invalid, FunctionNotFound):
        return None
    return f"functions/{cid}"


def _prefixed(digits: str) -> str:
    return digits if digits.startswith("0x") else f"0x{digits}"
