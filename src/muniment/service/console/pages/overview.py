"""The overview, this service, and the records of an address."""

from __future__ import annotations

from collections import Counter
from importlib.metadata import version
from typing import TYPE_CHECKING, Final

from muniment.protocol.errors import Unavailable
from muniment.protocol.evm.address import Address
from muniment.protocol.functions.types import Function
from muniment.protocol.intents.lifecycle import INTENT_MOVES, Moment
from muniment.protocol.runs.outcomes import DECLINED, outcome_of, span, why_run_undone
from muniment.protocol.runs.reasons import RESULT_BYTES
from muniment.protocol.triggers.typed_data import registry_domain
from muniment.protocol.triggers.types import Trigger
from muniment.service.auth.secrets import ring_of
from muniment.service.console import beside, empty, reading, rows
from muniment.service.console.counts import DAY_MS, counted, nobody
from muniment.service.console.page import page
from muniment.service.console.parts import Bar, absolute, bars, facts, heading, identifier, link, state, table
from muniment.service.console.rows import log_line
from muniment.service.context import Context
from muniment.service.http.html.frame import Page, root_from
from muniment.service.http.html.markup import NOTHING, Html, html
from muniment.service.http.request import Request
from muniment.service.resources.functions.routes import list_functions
from muniment.service.resources.functions.store import FunctionQuery, count_functions
from muniment.service.resources.intents.history import Hour, count_by_hour
from muniment.service.resources.intents.queries import IntentQuery
from muniment.service.resources.runs.counting import Outcomes, count_by_outcome
from muniment.service.resources.triggers.counting import count_active
from muniment.service.resources.triggers.listing import TriggerQuery
from muniment.service.resources.triggers.routes import list_triggers
from muniment.service.running.limits.policies import NAMES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from muniment.chains.catalogue import Chain
    from muniment.service.storage.database import Reader

_NEWEST: Final = 8
# From the end of an intent's life to its beginning: the usual end stands at the foot of a bar.
_STACKED: Final = ("succeeded", "submitted", "enqueued", "created", "failed", "discarded", "expired")
# A status after which an intent does not change.
_ENDS: Final = tuple(name for name, following in INTENT_MOVES.items() if not following)


@page("/console")
async def overview(context: Context, request: Request) -> Page:
    """Four numbers, what came of the last day, and the newest records."""
    root, now_ms, database = root_from(request.path), context.clock.now_ms(), context.database
    moment = Moment(now_ms, context.settings.settlement_grace_s)
    hours = await counted(context, "intents", lambda: count_by_hour(database, moment))
    ran = await counted(context, "runs", lambda: count_by_outcome(database, now_ms))
    active = await counted(context, "triggers", lambda: count_active(database, now_ms))
    deployed = await counted(context, "functions", lambda: count_functions(database))
    intents = await reading.intents(context, request, IntentQuery(limit=_NEWEST, generation="all"))
    triggers = await reading.listing(list_triggers, context, request, TriggerQuery(limit=_NEWEST), Trigger)
    line = await log_line(context, root)
    body = html(
        '<h1>Overview</h1><p class="faint">Registry of wallet-signed automation under the name <strong>{}</strong>. '
        "Every signature, CID and hash shown here can be checked in this browser.</p>{}{}{}{}{}{}{}{}{}{}",
        registry_domain(context.settings.protocol_name).name,
        _numbers(active, deployed, hours, root),
        html('<p class="faint">Transparency log: {}</p>', line) if line else NOTHING,
        await nobody(context),
        _day(hours, root),
        _ran(ran, root, now_ms - DAY_MS),
        _undone(hours, ran, root, now_ms - DAY_MS),
        heading("Newest intents", end=link(f"{root}console/intents", "All intents")),
        rows.intents(
            intents.records,
            root,
            now_ms,
            beside=await beside.of_intents(context, request, intents.records),
            none=empty.no_intents(root),
        ),
        heading("Newest triggers", end=link(f"{root}console/triggers", "All triggers")),
        rows.triggers(
            triggers.records,
            root,
            now_ms,
            beside=await beside.of_triggers(context, request, triggers.records),
            none=empty.no_triggers(root),
        ),
    )
    return Page("Overview", body, "overview")


def _numbers(active: int | None, deployed: int | None, hours: Sequence[Hour] | None, root: str) -> Html:
    """Four numbers, each a link to what it counts."""
    totals = sum((each.counts for each in hours or ()), Counter[str]())
    ended = sum(totals[name] for name in _ENDS)
    since = f"&createdAfter={hours[0].begin_ms - 1}" if hours else ""
    shown = [
        ("console/triggers?active=true", "active triggers", None if active is None else f"{active:,}"),
        ("console/functions", "functions", None if deployed is None else f"{deployed:,}"),
        (f"console/intents?{since[1:]}", "intents in 24 hours", None if hours is None else f"{totals.total():,}"),
        (
            f"console/intents?status=succeeded{since}",
            f"of the {ended:,} that ended succeeded" if ended else "none has ended",
            f"{100 * totals['succeeded'] // ended} %" if ended else None,
        ),
    ]
    return html(
        '<ul class="numbers">{}</ul>',
        [
            html('<li><a href="{}{}"><strong>{}</strong> {}</a>', root, path, number or "–", words)
            for path, words, number in shown
        ],
    )


def _legend(kinds: Sequence[str], counts: Mapping[str, int], href: str) -> Html:
    """The kinds with their counts; each leads to its records at `href`, which ends with the name of the filter."""
    lines = [
        html(
            '<li><a class="state {}" href="{}={}">{} <strong>{}</strong></a>',
            name,
            href,
            name,
            name,
            f"{counts[name]:,}",
        )
        for name in kinds
    ]
    return html('<ul class="legend">{}</ul>', lines)


def _day(hours: Sequence[Hour] | None, root: str) -> Html:
    title = "Intents, last 24 hours"
    if hours is None:
        return html('{}<p class="empty">Too many to count in time.</p>', heading(title))
    totals = sum((each.counts for each in hours), Counter[str]())
    if not totals:
        return html(
            '{}<p class="empty">None arrived. {}</p>', heading(title), link(f"{root}console/runs", "See the runs")
        )
    shown = [name for name in INTENT_MOVES if totals[name]]
    legend = _legend(shown, totals, f"{root}console/intents?createdAfter={hours[0].begin_ms - 1}&status")
    lines = [(absolute(each.begin_ms)[:16], *(each.counts[name] for name in shown)) for each in hours]
    return html(
        '{}{}<details><summary>The numbers</summary><div class="wide">{}</div></details>',
        heading(title, end=legend),
        bars([Bar(each.begin_ms, each.counts) for each in hours], _STACKED, label="Intents by hour and status"),
        table(("Hour (UTC)", *shown), lines, label="Intents by hour and status", numbers=shown),
    )


def _ran(outcomes: Outcomes | None, root: str, since_ms: int) -> Html:
    title = heading("Runs, last 24 hours", end=link(f"{root}console/runs", "All runs"))
    if outcomes is None:
        return html('{}<p class="empty">Too many to count in time.</p>', title)
    if not outcomes:
        return html('{}<div class="empty">{}</div>', title, empty.no_runs())
    counts = Counter[str]()
    for (result, _, _), count in outcomes.items():
        counts[result] += count
    names = [name for name in RESULT_BYTES if counts[name]]
    return html("{}{}", title, _legend(names, counts, f"{root}console/runs?createdAfter={since_ms}&result"))


def _undone(hours: Sequence[Hour] | None, outcomes: Outcomes | None, root: str, since_ms: int) -> Html:
    """What was not carried out in the last day, by reason; each leads to its records."""
    title = heading("Not carried out, last 24 hours")
    if hours is None or outcomes is None:
        return html('{}<p class="empty">Too many to count in time.</p>', title)
    found, declined = Counter[tuple[str, str, str]](), 0
    for (status, why), count in sum((each.reasons for each in hours), Counter[tuple[str, str]]()).items():
        found[f"intents?createdAfter={hours[0].begin_ms - 1}&status={status}", status, why] += count
    for (result, reason, is_lost), count in outcomes.items():
        if why := why_run_undone(result, reason, is_lost=is_lost):
            found[f"runs?createdAfter={since_ms}&result={result}", result, why] += count
        declined += count if outcome_of(result, reason) == DECLINED else 0
    lines = [_reason(root, *kind, count) for kind, count in found.most_common()]
    if declined:
        path = f"runs?createdAfter={since_ms}&result=stopped"
        lines.append(_reason(root, path, DECLINED, "declined by the function", declined))
    if not lines:
        return html('{}<p class="empty">Nothing: what ended was carried out.</p>', title)
    return html('{}<ul class="legend reasons">{}</ul>', title, lines)


def _reason(root: str, path: str, kind: str, words: str, count: int) -> Html:
    return html(
        '<li><a class="state {}" href="{}console/{}">{} <strong>{}</strong></a>', kind, root, path, words, f"{count:,}"
    )


_MIB: Final = 2**20
_KIB: Final = 2**10


@page("/console/service")
async def service_page(context: Context, request: Request) -> Page:
    """Readiness, domain, limits and chains, without URLs of nodes and databases, which contain keys."""
    root, settings = root_from(request.path), context.settings
    domain = registry_domain(settings.protocol_name)
    keys = [each.id for each in ring_of(context.secrets()).secrets]
    body = html(
        '<h1>This service</h1>{}{}{}{}{}<p>More for programs: <a href="{}openapi.json">OpenAPI</a>, '
        '<a href="{}.well-known/jwks.json">keys of the tokens</a>, <a href="{}readyz">readiness</a>.</p>',
        facts([
            ("State", await _readiness(context)),
            ("Release", html("Muniment {}", version("muniment"))),
            ("EIP-712 domain", html("{}, version {}", domain.name, domain.version)),
            ("Domain separator", identifier(f"0x{domain.separator.hex()}", whole=True)),
            ("CIDs of new bundles", html("<code>{}</code>", settings.unixfs_profile)),
            ("Keys of tokens", html("{}", [html("<code>{}</code> ", each) for each in keys])),
            ("Change feed", html("{}", settings.feed)),
            ("Transparency log", await log_line(context, root)),
        ]),
        heading("Limits"), _limits(context),
        heading("Chains"), _chains(context.chains, await _progress(context.list_reader())),
        root, root, root,
    )  # fmt: skip
    return Page("This service", body)


async def _readiness(context: Context) -> Html:
    try:
        await context.serving.check_ready()
    except Unavailable as refusal:
        return html("{}: {}", state("failed"), refusal.detail)
    return state("ready")


def _limits(context: Context) -> Html:
    settings = context.settings
    known = [
        (
            name,
            html("{} in {}", f"{policy.quota:,}", span(policy.window_s))
            if (policy := settings.rate_limits.get(name))
            else html("none"),
        )
        for name in NAMES
    ]
    return facts([
        ("Body", html("{} KiB", settings.body_bytes_max // _KIB)),
        ("manifest.json", html("{} KiB", settings.manifest_bytes_max // _KIB)),
        ("function.wasm", html("{} MiB", settings.wasm_bytes_max // _MIB)),
        ("Trigger", html("{} KiB", settings.trigger_bytes_max // _KIB)),
        ("Life of a token", html("{} at most", span(settings.token_lifetime_s))),
        *((f"Rate limit: {name}", words) for name, words in known),
    ])  # fmt: skip


def _chains(chains: Mapping[int, Chain], progress: Mapping[tuple[int, bytes], int]) -> Html:
    lines = [
        (
            each.name,
            html("<code>{}</code>", each.id),
            html("{}", [html("<div>{}</div>", identifier(str(settler))) for settler in each.settlers]),
            html(
                "{}", [html("<div>{}</div>", _read(progress.get((each.id, settler.raw)))) for settler in each.settlers]
            ),
            len(each.rpc_urls),
        )
        for each in chains.values()
    ]
    return table(
        ("Chain", "Id", "Settlers", "Read up to block", "Nodes"), lines, label="Chains", numbers=("Id", "Nodes")
    )


def _read(next_block: int | None) -> str:
    return "–" if next_block is None else f"{next_block - 1:,}"


async def _progress(reader: Reader) -> dict[tuple[int, bytes], int]:
    """The next block of each chain and settler that `muniment intents watch` follows."""
    rows = await reader.fetch("SELECT chain_id, settler, next_block FROM chain_progress")
    return {(chain_id, settler): next_block for chain_id, settler, next_block in rows}


# Rows of each kind.
_SHOWN: Final = 10


@page("/console/addresses/{address}")
async def address_page(context: Context, request: Request, address: Address) -> Page:
    """The triggers, intents and functions of an address."""
    root, now_ms = root_from(request.path), context.clock.now_ms()
    triggers = await reading.listing(
        list_triggers, context, request, TriggerQuery(signer=address, limit=_SHOWN), Trigger
    )  # fmt: skip
    intents = await reading.intents(context, request, IntentQuery(user=address, limit=_SHOWN, generation="all"))
    functions = await reading.listing(
        list_functions, context, request, FunctionQuery(creator=address, limit=_SHOWN), Function
    )  # fmt: skip
    body = html(
        '<h1>Address</h1><p>{} <span id="mine" data-address="{}" class="faint"></span></p>{}{}{}{}{}{}',
        identifier(address, whole=True), address,
        heading("Triggers", end=link(f"{root}console/triggers?signer={address}", "All of them")),
        rows.triggers(
            triggers.records, root, now_ms, beside=await beside.of_triggers(context, request, triggers.records),
            none=html('It has signed no trigger. <a href="{}console/triggers/new">Sign one</a>', root),
            without="Signer",
        ),
        heading("Intents", end=link(f"{root}console/intents?user={address}", "All of them")),
        rows.intents(
            intents.records, root, now_ms, beside=await beside.of_intents(context, request, intents.records),
            none=html("It has no intents: they come of the runs of its triggers."), without="User",
        ),
        heading("Functions", end=link(f"{root}console/functions?creator={address}", "All of them")),
        rows.functions(
            functions.records, root, now_ms, signed=await beside.signed(context, functions.records),
            none=html('It has deployed no function. <a href="{}console/deploy">Deploy one</a>', root),
            without="Creator",
        ),
    )  # fmt: skip
    return Page(f"Address {address}", body)
