"""Intents: the list, and each with its life line, proposals and logs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from muniment.console import reading, rows
from muniment.console.filters import Choice, Field, filter_form
from muniment.console.page import page
from muniment.console.parts import facts, heading, identifier, live, pages, state, table
from muniment.console.times import milliseconds, relative
from muniment.console.words import kinds_of, second_kind
from muniment.context import Context
from muniment.evm.hex import Bytes32
from muniment.http.html.frame import Page, root_from
from muniment.http.html.markup import NOTHING, Html, html, strange
from muniment.http.query import QueryReader
from muniment.http.request import Request
from muniment.intents.lifecycle import INTENT
from muniment.intents.queries import IntentQuery
from muniment.intents.reading.moves import list_moves
from muniment.intents.routes import get_intent
from muniment.intents.types import Intent, Move

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from muniment.chains.catalogue import Chain
    from muniment.intents.types import AnyIntent, AnyProposal, Log

_QUERY: Final = QueryReader(IntentQuery)
_FILTERS: Final = (
    Choice("status", "Status", tuple((name, name) for name in INTENT)),
    Choice("op", "Operation", tuple((str(number), second_kind(number)) for number in range(5))),
    Field("user", "User"), Field("settler", "Settler"), Field("configSig", "Trigger"),
)  # fmt: skip
_PROPOSAL: Final = ("Proposal", "Solver", "Status", "Fees", "Signatures", "Transaction")
_UNDECIDED: Final = ("created", "enqueued", "submitted")


@page("/console/intents")
async def list_page(context: Context, request: Request) -> Page:
    """The intents that the address asks for, newest first."""
    root = root_from(request.path)
    query = reading.read_query(request, _QUERY, b"generation=all")
    found = await reading.intents(context, request, query)
    none = "No intent matches." if request.query else "No intent has arrived yet. Relayers record them as operators."
    body = html(
        "{}{}{}{}",
        heading("Intents", level=1),
        filter_form(request, _FILTERS),
        live("intents", found.prev, rows.intents(found.records, root, context.now_ms(), none=none), request),
        pages(request, found.next),
    )
    return Page("Intents", body, "intents", f"{root}intents?generation=all", ("live.js",))


@page("/console/intents/{hash}")
async def intent_page(context: Context, request: Request, hash: Bytes32) -> Page:  # noqa: A002 - the name is the path parameter's
    """One intent."""
    root, now_ms = root_from(request.path), context.now_ms()
    reply = await get_intent.handler(context, request, hash)
    intent = reading.intent(await reading.whole(reply))
    moves: list[Move] = await list_moves.handler(context, request, hash)
    etag = next((value.decode() for name, value in reply.headers if name == b"etag"), "")
    title = ", ".join(kinds_of(intent))
    body = html(
        '<a class="back" href="{}console/intents">Intents</a>{}<div id="life" data-hash="{}" data-etag="{}">{}</div>'
        "{}{}{}{}{}",
        root, heading(title, end=state(intent.status), level=1),
        hash if intent.status in _UNDECIDED else "", etag, _life_line(moves, now_ms),
        _facts(intent, root, now_ms, context.chains), _why(intent, moves), _operations(intent, root),
        _proposals(intent, context.chains, root), _logs(intent.logs),
    )  # fmt: skip
    return Page(f"{title} {hash[:10]}", body, "intents", f"{root}intents/{hash}", ("intent.js",))


def _life_line(moves: Sequence[Move], now_ms: int) -> Html:
    steps = [
        html(
            "<li>{}<br>{}",
            state(each.status),
            relative(each.at, now_ms) if each.at else html('<span class="faint">time not known</span>'),
        )
        for each in moves
    ]
    return html('<ol class="life" aria-label="Life of the intent">{}</ol>', steps)


def _facts(intent: AnyIntent, root: str, now_ms: int, chains: Mapping[int, Chain]) -> Html:
    trigger = str(intent.config_sig if isinstance(intent, Intent) else intent.trigger_sig)
    user = rows.user_of(intent)
    has_trigger = len(trigger) == 132  # noqa: PLR2004 - 0x and the 130 digits of a signature
    whose = "User" if isinstance(intent, Intent) else "Payer of fees"
    return facts([
        ("Hash", identifier(intent.hash, whole=True)),
        (whose, identifier(user, f"{root}console/addresses/{user}", whole=True)),
        ("Trigger", identifier(trigger, f"{root}console/triggers/{trigger}") if has_trigger else strange(trigger)),
        ("Settler", _settler(str(intent.settler), chains)),
        ("Deadline", rows.deadline(intent, now_ms)),
        ("Arrived", relative(milliseconds(intent.created_at), now_ms)),
        ("Validations", html("{}", intent.min_validations)),
        ("Most fees", _fees([(str(each.token), each.amount) for each in intent.max_fees]) if intent.max_fees else None),
        ("Transaction", _transaction(intent.transaction_hash, str(intent.settler), chains)),
        ("On the other chain", _transaction(intent.dest_transaction_hash, "", chains)),
    ])  # fmt: skip


def _settler(settler: str, chains: Mapping[int, Chain]) -> Html:
    names = [chain.name for chain in chains.values() if settler in chain.settlers]
    known = html(' <span class="faint">settlement contract on {}</span>', ", ".join(names)) if names else NOTHING
    return html("{}{}", identifier(settler, whole=True), known)


def _fees(pairs: Sequence[tuple[str, str]]) -> Html:
    return html("{}", [html("<div><code>{}</code> of {}</div>", amount, identifier(token)) for token, amount in pairs])


def _transaction(value: Any, settler: str, chains: Mapping[int, Chain]) -> Html | None:
    """A transaction with links to explorers: an intent does not say its chain, so to each that has its settler."""
    if not value:
        return None
    places = [chain for chain in chains.values() if chain.explorer_url and (settler in chain.settlers or not settler)]
    links = [
        html('<a href="{}/tx/{}" rel="noreferrer">{}</a> ', each.explorer_url, str(value), each.name) for each in places
    ]
    shown = html(" <details><summary>Look on</summary>{}</details>", links) if links else NOTHING
    return html("{}{}", identifier(str(value), whole=True), shown)


def _why(intent: AnyIntent, moves: Sequence[Move]) -> Html | None:
    """Why nothing happened, where the records say it."""
    if intent.status == "expired":
        if not intent.proposals:
            words = "No solver made a proposal before the deadline."
        elif all(each.status == "rejected" for each in intent.proposals):
            words = "Every proposal was rejected."
        elif any(each.status == "submitted" for each in moves):
            words = "A transaction was sent, and the settlement contract did not report its success in time."
        else:
            words = "No proposal was sent to the chain before the deadline."
    elif intent.status == "discarded":
        words = "The relayer discarded it. Its logs may say why."
    elif intent.status == "failed":
        words = "The transaction failed on the chain. The logs may say why."
    else:
        return None
    return html('<p class="note">{}</p>', words)


def _operations(intent: AnyIntent, root: str) -> Html:
    if isinstance(intent, Intent):
        return html("<details><summary>Data of the operation</summary><pre>{}</pre></details>", str(intent.data))
    lines = [
        (
            second_kind(each.op_type),
            identifier(each.user, f"{root}console/addresses/{each.user}"),
            html(
                "<details><summary>{} bytes</summary><pre>{}</pre></details>", len(each.data) // 2 - 1, str(each.data)
            ),
        )
        for each in intent.operations
    ]
    return html("{}{}", heading("Operations"), table(("Operation", "User", "Data"), lines, label="Operations"))


def _proposals(intent: AnyIntent, chains: Mapping[int, Chain], root: str) -> Html:
    if not intent.proposals:
        return html('{}<p class="empty">No solver has made one.</p>', heading("Proposals"))
    tokens = [str(each.token) for each in intent.max_fees]
    lines = [_proposal(each, tokens, str(intent.settler), chains, root) for each in intent.proposals]
    return html("{}{}", heading("Proposals"), table(_PROPOSAL, lines, label="Proposals"))


def _proposal(
    proposal: AnyProposal, tokens: Sequence[str], settler: str, chains: Mapping[int, Chain], root: str
) -> tuple[Html, ...]:
    verified = {True: "valid", False: "not valid", None: "cannot be told"}[proposal.verified]
    fees = list(zip([*tokens, *[""] * len(proposal.fees)], proposal.fees, strict=False))
    note = html('<div class="faint">{}</div>', strange(proposal.description)) if proposal.description else NOTHING
    return (
        identifier(proposal.hash),
        identifier(proposal.solver, f"{root}console/addresses/{proposal.solver}"),
        html("{}{}", state(proposal.status), note),
        html(
            "{}",
            [
                html("<div><code>{}</code>{}</div>", amount, html(" of {}", identifier(token)) if token else None)
                for token, amount in fees
            ],
        ),
        html("{}", verified),
        _transaction(proposal.transaction_hash, settler, chains) or html("–"),
    )


def _logs(logs: Sequence[Log]) -> Html:
    if not logs:
        return html('{}<p class="empty">No line yet.</p>', heading("Logs"))
    lines = [
        html(
            '<tr><td>{}<td class="{}">{}<td>{}</tr>',
            rows.moment(milliseconds(each.created_at)), each.level, each.level, strange(each.data),
        )
        for each in logs
    ]  # fmt: skip
    return html(
        '{}<div class="wide"><table class="logs" aria-label="Logs"><tbody>{}</table></div>', heading("Logs"), lines
    )


OPERATIONS: Final = (list_page, intent_page)
