"""The page that signs a trigger: the choice of a function, which needs no script, and the place for the form."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl, urlencode

from muniment.chains.catalogue import NATIVE
from muniment.protocol.errors import FunctionNotFound, Invalid
from muniment.protocol.functions.types import Function, NamePrefix
from muniment.protocol.ipfs.cid import BundleCid, Cid
from muniment.protocol.runs.outcomes import span
from muniment.protocol.triggers.types import Trigger
from muniment.service.console import reading
from muniment.service.console.empty import no_functions
from muniment.service.console.page import page
from muniment.service.console.parts import identifier, options
from muniment.service.context import Context
from muniment.service.http.html.frame import Page, root_from
from muniment.service.http.html.markup import Html, html, seen, strange
from muniment.service.http.request import Request
from muniment.service.resources.functions.routes import list_functions
from muniment.service.resources.functions.store import FunctionQuery
from muniment.service.resources.intents.run_outputs import life_of
from muniment.service.resources.triggers.listing import TriggerQuery
from muniment.service.resources.triggers.routes import list_triggers

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from muniment.chains.tokens import Token
    from muniment.service.http.html.markup import Value

# What a link may fill in besides the function, and how much of a query is read: each listed function repeats it.
_KEPT: Final = frozenset({"input", "config", "description", "version", "executionFeeLimit", "minValidations"})
_QUERY_LENGTH_MAX: Final = 8_192
# Functions of each list.
_SHOWN: Final = 8
_FOUND: Final = 25
# Triggers among which the functions in most use are counted.
_COUNTED: Final = 50
# Newest triggers of a function whose intents show how long they are good.
_LIVED: Final = 10
# Tokens of each chain that are offered by name: the first of the operator's lists.
_TOKENS: Final = 40


@page("/console/triggers/new")
async def wizard_page(context: Context, request: Request) -> Page:
    """The choice of a function, or for the function in the address the place for the form, which a script fills."""
    parts = request.query[:_QUERY_LENGTH_MAX].decode("latin-1")
    given = {name: value for name, value in parse_qsl(parts) if name in _KEPT or name in {"functionCid", "name"}}
    typed = given.get("functionCid", "").strip() or given.get("name", "").strip()
    function, refusal = await _chosen(context, typed, is_named="functionCid" in given)
    if function is None:
        step = await _choice(context, request, given, typed, refusal)
    else:
        life_s = await _life(context, request, function)
        step = _form(context, function, life_s, root_from(request.path))
    body = html(
        '<a class="back" href="{}console/triggers">Triggers</a><h1>Sign a trigger</h1>{}', root_from(request.path), step
    )
    return Page("Sign a trigger", body, "triggers", scripts=("wizard.js",) if function else ())


async def _chosen(context: Context, typed: str, *, is_named: bool) -> tuple[Function | None, str]:
    """The function of a CID, or why there is none; `is_named`: only a CID will do."""
    try:
        cid = Cid.parse(typed)
    except Invalid as refusal:
        return None, refusal.detail if is_named and typed else ""
    try:
        return await reading.function(context, cid), ""
    except FunctionNotFound as refusal:
        return None, refusal.detail


async def _choice(context: Context, request: Request, given: Mapping[str, str], typed: str, refusal: str) -> Html:
    kept = [(name, value) for name, value in given.items() if name in _KEPT]
    lists = [] if refusal else await _named(context, request, typed, kept)
    if not typed or refusal:
        newest = await _functions(context, request, FunctionQuery(limit=_SHOWN))
        lists = [
            await _most_used(context, request, kept),
            _list("Newest", newest, kept, no_functions(root_from(request.path))),
        ]
    return html(
        '<form class="choose"><label for="name">Function</label><div><input id="name" name="name" type="search" '
        'value="{}" aria-describedby="name-hint{}"{} spellcheck="false" autocomplete="off" autocapitalize="off">{} '
        '<button>Find</button></div><p id="name-hint" class="hint faint">The beginning of its name, or its CID</p>{}'
        '</form><div class="choices">{}</div>',
        typed, " name-fault" if refusal else "", html(' aria-invalid="true"') if refusal else None,
        [html('<input type="hidden" name="{}" value="{}">', name, value) for name, value in kept],
        html('<p id="name-fault" class="fault bad" role="alert">{}</p>', seen(refusal)) if refusal else None,
        lists,
    )  # fmt: skip


async def _functions(context: Context, request: Request, query: FunctionQuery) -> list[Function]:
    return (await reading.listing(list_functions, context, request, query, Function)).records


async def _named(context: Context, request: Request, typed: str, kept: Sequence[tuple[str, str]]) -> list[Html]:
    """The functions whose name begins with a text; no list without a text."""
    if not typed:
        return []
    try:
        name = NamePrefix.parse(typed)
    except Invalid as refusal:
        return [html('<p class="empty">{}.</p>', seen(refusal.detail).rstrip("."))]
    found = await _functions(context, request, FunctionQuery(name=name, limit=_FOUND))
    return [
        _list("Found", found, kept, html('No function has a name that begins so. <a href="new">Show the newest</a>'))
    ]


async def _most_used(context: Context, request: Request, kept: Sequence[tuple[str, str]]) -> Html:
    """The functions of the newest triggers, the most frequent first."""
    newest = await reading.listing(list_triggers, context, request, TriggerQuery(limit=_COUNTED), Trigger)
    counts = Counter(Cid.parse(str(each.function_cid)) for each in newest.records)
    wanted = [cid for cid, _ in counts.most_common(_SHOWN)]
    found = await _functions(context, request, FunctionQuery(cids=wanted, limit=_SHOWN)) if wanted else []
    found.sort(key=lambda each: -counts[each.cid])
    return _list("Used most of late", found, kept, "No trigger is signed yet: yours would be the first.")


def _list(title: str, found: Sequence[Function], kept: Sequence[tuple[str, str]], none: Value) -> Html:
    lines = [
        html(
            '<li><a href="?{}">{} {}</a><div>{}</div><div class="faint">{}</div>',
            urlencode([("functionCid", str(each.cid)), *kept]), strange(each.name), str(each.version),
            strange(each.description), identifier(each.cid),
        )
        for each in found
    ]  # fmt: skip
    shown = html("<ul>{}</ul>", lines) if lines else html('<p class="empty">{}</p>', none)
    return html("<section><h2>{}</h2>{}</section>", title, shown)


async def _life(context: Context, request: Request, function: Function) -> int | None:
    """How long the intents of a function are good, in seconds from what was due, as far as records show it."""
    query = TriggerQuery(function_cid=BundleCid.parse(str(function.cid)), limit=_LIVED)
    known = (await reading.listing(list_triggers, context, request, query, Trigger)).records
    return await life_of(context.list_reader(), [each.sig.raw for each in known])


def _form(context: Context, function: Function, life_s: int | None, root: str) -> Html:
    chains = [(str(each.id), each.name) for each in context.chains.values()]
    good = f"Its intents were good for {span(life_s or 0)} from when they were due: a later run comes to nothing."
    return html(
        '<div id="wizard" class="wizard" data-protocol="{}" data-cid="{}" data-name="{}" data-version="{}" '
        'data-life="{}" data-good="{}">'
        '<div class="left"><h2>1 Function</h2><p><strong>{}</strong> {} <a href="new">Choose another</a></p><p>{}</p>'
        '<p>{}</p><p class="faint without">The rest needs a script and a wallet. Without them, use <code>muniment '
        "triggers sign</code>.</p></div></div>"
        '<datalist id="chains">{}</datalist><datalist id="tokens">{}</datalist>',
        context.settings.protocol_name, function.cid, function.name, str(function.version), life_s, good,
        strange(function.name), str(function.version), strange(function.description),
        identifier(function.cid, f"{root}console/functions/{function.cid}"), options(chains), _tokens(context),
    )  # fmt: skip


def _tokens(context: Context) -> list[Html]:
    """The tokens that are offered by name, with their chain and decimals; the chain's coin comes first."""
    known = [
        (each.id, str(address), symbol, decimals)
        for each in context.chains.values()
        for address, symbol, decimals in (
            (NATIVE, each.native_symbol, each.native_decimals),
            *((token.address, token.symbol, token.decimals) for token in _of_chain(context, each.id)),
        )
    ]
    return [
        html(
            '<option value="{}" data-chain="{}" data-decimals="{}">{}</option>', address, chain, decimals, seen(symbol)
        )
        for chain, address, symbol, decimals in known
    ]


def _of_chain(context: Context, chain_id: int) -> Sequence[Token]:
    return [each for each in context.holdings.tokens.tokens(chain_id) if each.address != NATIVE][:_TOKENS]
