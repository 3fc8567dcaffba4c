"""Intents: the list, and each with its life line, operations, proposals and logs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from muniment.protocol.errors import Invalid
from muniment.protocol.evm.hex import Bytes32
from muniment.protocol.intents.asked import Operation, operations_of
from muniment.protocol.intents.lifecycle import INTENT_MOVES, Moment
from muniment.protocol.intents.operations import kinds_of
from muniment.protocol.intents.types import Intent, Move
from muniment.protocol.runs.outcomes import why_intent_undone, why_undone
from muniment.protocol.wire import ms_of
from muniment.service.console import beside, empty, reading, rows
from muniment.service.console.brief import intent_line
from muniment.service.console.page import page
from muniment.service.console.parts import (
    ChoiceField,
    TextField,
    TimeField,
    dated,
    facts,
    heading,
    identifier,
    listing_page,
    refused_listing,
    relative,
    state,
    table,
    to_the_second,
)
from muniment.service.console.words import Tokens, asked_for, offered, paid_on, shows_offers
from muniment.service.context import Context
from muniment.service.http.html.frame import Page, root_from
from muniment.service.http.html.markup import NOTHING, Html, html, strange, text_of
from muniment.service.http.query import QueryReader
from muniment.service.http.request import Request
from muniment.service.resources.intents import store
from muniment.service.resources.intents.history import list_moves
from muniment.service.resources.intents.queries import IntentQuery

if TYPE_CHECKING:
    from collections.abc import Sequence

    from muniment.protocol.intents.types import AnyIntent, AnyProposal, Log
    from muniment.protocol.runs.types import Run

_QUERY: Final = QueryReader(IntentQuery)
# The types of operations of both forms: a number means nearly the same in either.
_OPERATIONS: Final = ("Swap", "Transfer", "Call", "Cross-chain swap, SVM call", "Dynamic call")
_FILTERS: Final = (
    ChoiceField("status", "Status", tuple((name, name) for name in INTENT_MOVES)),
    ChoiceField("op", "Operation", tuple((str(number), words) for number, words in enumerate(_OPERATIONS))),
    TextField("user", "User"),
    TextField("settler", "Settler"),
    TextField("configSig", "Trigger"),
    TimeField("createdAfter", "After (UTC)"),
    TimeField("createdBefore", "Until (UTC)"),
)


@page("/console/intents")
async def list_page(context: Context, request: Request) -> Page:
    """The intents that match the filters, newest first."""
    root = root_from(request.path)
    try:
        query = reading.read_query(request, _QUERY, b"generation=all")
    except Invalid as refusal:
        return refused_listing(request, "intents", _FILTERS, refusal)
    found = await reading.intents(context, request, query)
    none = empty.NO_MATCH if request.query else empty.no_intents(root)
    known = await beside.of_intents(context, request, found.records)
    shown = rows.intents(found.records, root, context.clock.now_ms(), beside=known, none=none)
    return listing_page(request, "intents", found, _FILTERS, shown)


_PROPOSAL: Final = ("Proposal", "Solver", "Status", "Offers", "Fees", "Signatures", "Transaction")
_VERIFIED: Final = {True: "valid", False: "not valid", None: "cannot be told"}
# `0x` and 130 digits.
_SIGNATURE_LENGTH: Final = 132
# Chains of a settlement contract that are named; others are counted.
_NAMED_MAX: Final = 3
_UNDECIDED: Final = ("created", "enqueued", "submitted")
# The way to success.
_WAY: Final = (*_UNDECIDED, "succeeded")


@page("/console/intents/{hash}")
async def intent_page(context: Context, request: Request, hash: Bytes32) -> Page:
    """One intent. Its script announces changes.

    It shows the newest 50 proposals and logs, as a listing does: an intent may have thousands, which
    `GET /intents/{hash}` streams.
    """
    root, now_ms = root_from(request.path), context.clock.now_ms()
    head = await store.find(context.database, hash.raw, Moment(now_ms, context.settings.settlement_grace_s))
    (record,) = await store.listed(context.database, [head])
    intent = reading.intent(record.encode())
    moves: list[Move] = await list_moves.handler(context, request, hash)
    run = await reading.run_of(context, request, intent)
    shown = _Shown(context, intent, root)
    title = intent_line(intent, shown.tokens)
    json = f"{root}intents/{hash}"
    body = html(
        '<a class="back" href="{}console/intents">Intents</a>{}{}{}{}{}{}{}{}',
        root, heading(
            html("{} <small>{}</small>", title, ", ".join(kinds_of(intent))), end=state(intent.status), level=1
        ), _life_line(moves, now_ms),
        _changed(hash, head.etag) if intent.status in _UNDECIDED else None,
        _why(intent, moves, now_ms), shown.facts(run, now_ms), shown.operations(),
        html(
            "{}{}", heading("Proposals", end=_newest(len(intent.proposals), head.proposal_count, json)),
            shown.proposals(),
        ),
        html("{}{}", heading("Logs", end=_newest(len(intent.logs), head.log_count, json)), _logs(intent.logs)),
    )  # fmt: skip
    return Page(f"{text_of(title)} · {hash[:10]}", body, "intents", json, ("intent.js",))


def _life_line(moves: Sequence[Move], now_ms: int) -> Html:
    """What became of the intent, and the moves that are to come if all goes well."""
    steps = [html("<li>{}<br>{}", state(each.status), _moved(each, now_ms)) for each in moves]
    last = moves[-1].status if moves else ""
    ahead = _WAY[_WAY.index(last) + 1 :] if last in _WAY else ()
    steps += [html('<li class="ahead">{}<br><span>not yet</span>', state(each)) for each in ahead]
    return html('<ol class="life" aria-label="Life of the intent">{}</ol>', steps)


def _moved(move: Move, now_ms: int) -> Html:
    """The time of a move: to the second, because moves are seconds apart."""
    return to_the_second(move.at, now_ms) if move.at else html('<span class="faint">time not known</span>')


def _changed(intent_hash: str, etag: str) -> Html:
    """The place where a script announces that the intent has changed."""
    return html(
        '<div id="changed" class="changed" data-hash="{}" data-etag="{}" aria-live="polite"></div>', intent_hash, etag
    )


def _newest(shown: int, count: int, json: str) -> Html:
    """A note that only the newest are shown, with a link to all of them."""
    if shown >= count:
        return NOTHING
    return html('<span>the newest {} of {}; <a href="{}">all as JSON</a></span>', shown, f"{count:,}", json)


def _why(intent: AnyIntent, moves: Sequence[Move], now_ms: int) -> Html | None:
    """The reason why nothing happened, or the next event that the intent waits for, if the records show it."""
    if intent.status == "expired":
        words = _why_expired(intent, moves)
    elif why := why_intent_undone(intent):
        words = f"Not carried out: {why}. The logs may say why."
    elif intent.status in {"created", "enqueued"}:
        words = _waits_for(intent, now_ms)
    else:
        is_late = intent.status == "submitted" and int(intent.deadline) * 1000 <= now_ms
        words = "Its deadline has passed. A transaction that was in time may still be seen on the chain."
        words = words if is_late else ""
    return html('<p class="note">{}</p>', words) if words else None


def _why_expired(intent: AnyIntent, moves: Sequence[Move]) -> str:
    if intent.proposals and all(each.status == "rejected" for each in intent.proposals):
        return "Not carried out: every offer was rejected."
    is_sent = any(each.status == "submitted" for each in moves)
    why = why_undone(intent.status, has_offers=bool(intent.proposals), is_sent=is_sent)
    return f"Not carried out: {why}."


def _waits_for(intent: AnyIntent, now_ms: int) -> str:
    if not intent.proposals:
        return "No solver has made a proposal yet."
    if all(each.status == "rejected" for each in intent.proposals):
        return "Every proposal so far was rejected."
    if all(int(each.deadline) * 1000 <= now_ms for each in intent.proposals):
        return "The deadline of every proposal so far has passed."
    return ""


class _Shown:
    """The parts of an intent's page that need chains and tokens."""

    def __init__(self, context: Context, intent: AnyIntent, root: str) -> None:
        self._intent, self._root, self._chains = intent, root, context.chains
        self.tokens = Tokens(context.chains, context.holdings.tokens)
        self._asked: list[Operation] = operations_of(intent)
        self._has_offers = shows_offers(self._asked)
        self._paid_on = paid_on(intent, self._asked, context.chains)

    def facts(self, run: Run | None, now_ms: int) -> Html:
        intent = self._intent
        trigger = str(intent.config_sig if isinstance(intent, Intent) else intent.trigger_sig)
        has_trigger = len(trigger) == _SIGNATURE_LENGTH
        fees = [(each.amount, each.token) for each in intent.max_fees]
        return facts([
            ("Hash", identifier(intent.hash, whole=True)),
            ("User" if isinstance(intent, Intent) else "Payer of fees", self._account(rows.user_of(intent))),
            (
                "Trigger",
                identifier(trigger, f"{self._root}console/triggers/{trigger}") if has_trigger else strange(trigger),
            ),
            ("Run", None if run is None else self._run(run, now_ms)),
            ("Settler", self._settler()),
            ("Deadline", dated(1000 * int(intent.deadline), now_ms)),
            ("Arrived", dated(ms_of(intent.created_at), now_ms)),
            ("Validations", html("{}", intent.min_validations)),
            ("Fees at most", self._fees(fees) if fees else None),
            ("Transaction", self._transaction(intent.transaction_hash)),
            ("On the other chain", self._transaction(intent.dest_transaction_hash, is_destination=True)),
        ])  # fmt: skip

    def operations(self) -> Html:
        lines = [
            (
                each.kind,
                asked_for(each, self.tokens, self._chains, self._root),
                identifier(each.user, f"{self._root}console/addresses/{each.user}"),
                _data(str(each.data)),
            )
            for each in self._asked
        ]
        title = "Operation" if len(lines) == 1 else "Operations"
        return html("{}{}", heading(title), table(("Kind", "Asks for", "User", "Data"), lines, label=title))

    def proposals(self) -> Html:
        if not self._intent.proposals:
            return html('<p class="empty">No solver has made one.</p>')
        names = [each for each in _PROPOSAL if each != "Offers" or self._has_offers]
        lines = [self._proposal(each, names) for each in self._intent.proposals]
        return table(names, lines, label="Proposals")

    def _proposal(self, proposal: AnyProposal, names: Sequence[str]) -> list[Html]:
        paid_in = [each.token for each in self._intent.max_fees]
        # Fees that are not as many as the tokens would be refused on the chain: they have no token.
        fees = list(zip(proposal.fees, paid_in, strict=True)) if len(proposal.fees) == len(paid_in) else []
        note = html('<div class="faint">{}</div>', strange(proposal.description)) if proposal.description else NOTHING
        cells = {
            "Proposal": identifier(proposal.hash),
            "Solver": identifier(proposal.solver, f"{self._root}console/addresses/{proposal.solver}"),
            "Status": html("{}{}", state(proposal.status), note),
            "Offers": (self._has_offers and offered(proposal, self._asked, self.tokens)) or html("–"),
            "Fees": self._fees(fees) if fees else _numbers(proposal.fees),
            "Signatures": html("{}", _VERIFIED[proposal.verified]),
            "Transaction": self._transaction(proposal.transaction_hash, whole=False) or html("–"),
        }
        return [cells[name] for name in names]

    def _account(self, address: str) -> Html:
        return identifier(address, f"{self._root}console/addresses/{address}", whole=True)

    def _run(self, run: Run, now_ms: int) -> Html:
        return html(
            '{} <span class="faint">due {}, {}</span>',
            identifier(run.hash, f"{self._root}console/runs/{run.hash}"), relative(run.timestamp, now_ms), run.status,
        )  # fmt: skip

    def _settler(self) -> Html:
        settler = self._intent.settler
        names = [chain.name for chain in self._chains.values() if settler in chain.settlers]
        places = ", ".join(names)
        words = places if len(names) <= _NAMED_MAX else f"{len(names)} chains"
        known = html(' <span class="faint" title="{}">settlement contract on {}</span>', places, words)
        return html("{}{}", identifier(settler, whole=True), known if names else None)

    def _fees(self, fees: Sequence[tuple[Any, Any]]) -> Html:
        return html(
            "{}", [html("<div>{}</div>", self.tokens.amount(int(value), token, self._paid_on)) for value, token in fees]
        )

    def _transaction(self, value: Any, *, is_destination: bool = False, whole: bool = True) -> Html | None:
        """A transaction with links to explorers of the operations' chains, else of all chains that may have it."""
        if not value:
            return None
        said = {each.chain_ids[-1] for each in self._asked if each.chain_ids} if is_destination else self._paid_on
        places = [
            chain for chain in self._chains.values() if chain.explorer_url and (chain.id in said or not said)
        ]  # fmt: skip
        links = [
            html('<a href="{}/tx/{}" rel="noreferrer">{}</a> ', each.explorer_url, str(value), each.name)
            for each in places
        ]
        if len(links) > 1:
            shown = html(" <details><summary>Look on</summary>{}</details>", links)
        else:
            shown = html(' <span class="faint">on</span> {}', links) if links else NOTHING
        return html("{}{}", identifier(str(value), whole=whole), shown)


def _numbers(fees: Sequence[str]) -> Html:
    return html("{}", [html("<div><code>{}</code></div>", each) for each in fees]) if fees else html("–")


def _data(data: str) -> Html:
    size = len(data) // 2 - 1
    if size == 0:
        return html("–")
    return html("<details><summary>{} byte{}</summary><pre>{}</pre></details>", size, "" if size == 1 else "s", data)


def _logs(logs: Sequence[Log]) -> Html:
    if not logs:
        return html('<p class="empty">No line yet.</p>')
    lines = [
        html(
            '<tr><td>{}<td class="{}">{}<td>{}</tr>',
            rows.moment(ms_of(each.created_at)), each.level, each.level, strange(each.data),
        )
        for each in logs
    ]  # fmt: skip
    return html('<div class="wide"><table class="logs" aria-label="Logs"><tbody>{}</table></div>', lines)
