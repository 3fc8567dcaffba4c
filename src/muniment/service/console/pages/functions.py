"""Functions: the list, each with its files, inputs and triggers, and the page that deploys one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from muniment.protocol.errors import Invalid
from muniment.protocol.functions.types import Function
from muniment.protocol.ipfs.cid import BundleCid, Cid
from muniment.protocol.triggers.types import Trigger
from muniment.protocol.wire import ms_of
from muniment.service.console import beside, empty, reading, rows
from muniment.service.console.page import page
from muniment.service.console.parts import (
    TextField,
    action,
    dated,
    facts,
    heading,
    identifier,
    link,
    listing_page,
    logged,
    refused_listing,
    table,
)
from muniment.service.context import Context
from muniment.service.http.html.frame import Page, root_from
from muniment.service.http.html.markup import Html, html, seen, strange
from muniment.service.http.query import QueryReader
from muniment.service.http.request import Request
from muniment.service.resources.functions.routes import get_manifest, list_functions
from muniment.service.resources.functions.store import FunctionQuery
from muniment.service.resources.triggers.listing import TriggerQuery
from muniment.service.resources.triggers.routes import list_triggers

if TYPE_CHECKING:
    from collections.abc import Sequence

_QUERY: Final = QueryReader(FunctionQuery)
_FILTERS: Final = (TextField("creator", "Creator"),)
_TRIGGERS: Final = 10


@page("/console/functions")
async def list_page(context: Context, request: Request) -> Page:
    """The functions that match the filters, newest first."""
    root = root_from(request.path)
    try:
        query = reading.read_query(request, _QUERY)
    except Invalid as refusal:
        return refused_listing(request, "functions", _FILTERS, refusal)
    found = await reading.listing(list_functions, context, request, query, Function)
    none = empty.NO_MATCH if request.query else empty.no_functions(root)
    signed = await beside.signed(context, found.records)
    shown = rows.functions(found.records, root, context.clock.now_ms(), signed=signed, none=none)
    end = action(f"{root}console/deploy", "Deploy a function")
    return listing_page(request, "functions", found, _FILTERS, shown, end=end)


@page("/console/functions/{cid}")
async def function_page(context: Context, request: Request, cid: Cid) -> Page:
    """One function. Its script fetches and hashes the bundle's blocks."""
    root, now_ms = root_from(request.path), context.clock.now_ms()
    function = await reading.function(context, cid)
    manifest = await _manifest(context, request, function)
    query = TriggerQuery(function_cid=BundleCid.parse(str(function.cid)), limit=_TRIGGERS)
    triggers = await reading.listing(list_triggers, context, request, query, Trigger)
    body = html(
        '<a class="back" href="{}console/functions">Functions</a>{}<p class="faint">{}</p>{}{}{}{}{}{}',
        root,
        heading(
            html("{} <small>{}</small>", strange(function.name), str(function.version)), level=1,
            end=action(f"{root}console/triggers/new?functionCid={function.cid}", "Sign a trigger"),
        ),
        strange(function.description), _facts(function, root, now_ms),
        html("{}{}", _check(function), logged(context, f"functions/{function.cid}")),
        _inputs(manifest.get("inputs", {})),
        heading("Triggers of it", end=link(f"{root}console/triggers?functionCid={function.cid}", "All of them")),
        rows.triggers(
            triggers.records, root, now_ms, beside=await beside.of_triggers(context, request, triggers.records),
            none=empty.no_triggers(root, str(function.cid)),
        ),
        await _versions(context, request, function, root),
    )  # fmt: skip
    title = seen(f"{function.name} {function.version}")
    return Page(title, body, "functions", f"{root}functions/{function.cid}", ("function.js", "logged.js"))


@page("/console/deploy")
async def deploy_page(context: Context, request: Request) -> Page:
    """The form for a bundle. Its script computes the CID before anything is sent."""
    root, settings = root_from(request.path), context.settings
    body = html(
        '<a class="back" href="{}console/functions">Functions</a><h1>Deploy a function</h1>'
        "<p>Two files make a function: <code>manifest.json</code>, which says what it is called and takes, and "
        "<code>function.wasm</code>, which runs. Its name is the CID of both: this page computes it before it sends "
        'anything.</p><div id="deploy" data-profile="{}" data-manifest-bytes="{}" data-wasm-bytes="{}">'
        '<p class="faint">This needs a script. Without one, deploy with <code>muniment deploy</code>.</p></div>',
        root, settings.unixfs_profile, settings.manifest_bytes_max, settings.wasm_bytes_max,
    )  # fmt: skip
    return Page("Deploy a function", body, "functions", scripts=("deploy.js",))


async def _manifest(context: Context, request: Request, function: Function) -> dict[str, Any]:
    return await reading.record(get_manifest, context, request, function.cid, dict[str, Any])


def _facts(function: Function, root: str, now_ms: int) -> Html:
    api = f"{root}functions/{function.cid}"
    return facts([
        ("CID", identifier(function.cid, whole=True)),
        ("Creator", identifier(function.creator, f"{root}console/addresses/{function.creator}", whole=True)),
        ("Deployed", dated(ms_of(function.created_at), now_ms)),
        ("Files", html(
            '<a href="{}/manifest">manifest.json</a> · <a href="{}/wasm">function.wasm</a> · '
            '<a href="{}ipfs/{}?format=car">both as a CAR</a>', api, api, root, function.cid,
        )),
    ])  # fmt: skip


def _check(function: Function) -> Html:
    """The place for the check of the content, which needs a script."""
    return html(
        '<section class="check" id="check" data-cid="{}"><h2>Is this the content of that CID?</h2>'
        '<p class="verdict" aria-live="polite">With a script this page fetches all blocks, hashes them, and walks from '
        "the CID to both files.</p></section>",
        function.cid,
    )


def _inputs(inputs: dict[str, Any]) -> Html:
    if not inputs:
        return html('{}<p class="empty">It takes none.</p>', heading("Inputs"))
    lines = [
        (html("<code>{}</code>", strange(name)), html("<code>{}</code>", strange(_type(each))), strange(_meaning(each)))
        for name, each in inputs.items()
    ]
    return html("{}{}", heading("Inputs"), table(("Name", "Type", "Meaning"), lines, label="Inputs"))


def _type(described: Any) -> str:
    return str(_member(described, "type")) if isinstance(described, dict) else str(described)


def _meaning(described: Any) -> str:
    return str(_member(described, "description")) if isinstance(described, dict) else ""


def _member(described: Any, name: str) -> Any:
    return described.get(name, "")


async def _versions(context: Context, request: Request, function: Function, root: str) -> Html | None:
    """Other versions: functions of the same name among the newest of the same creator."""
    query = FunctionQuery(creator=function.creator, limit=reading.ROWS)
    found = await reading.listing(list_functions, context, request, query, Function)
    others: Sequence[Function] = [
        each for each in found.records if each.name == function.name and each.cid != function.cid
    ]
    if not others:
        return None
    signed = await beside.signed(context, others)
    shown = rows.functions(others, root, context.clock.now_ms(), signed=signed, none="", without="Creator")
    return html("{}{}", heading("Other versions"), shown)
