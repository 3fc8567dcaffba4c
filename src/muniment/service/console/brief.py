"""Records in one line, for rows: what an intent asks for, what a trigger may do, and when."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from muniment.protocol.evm.address import Address
from muniment.protocol.evm.topics import event_name
from muniment.protocol.intents.asked import Amount, CallData, TokenName, line_of
from muniment.protocol.triggers.amounts import chains_of, kinds_of_inputs, money_of
from muniment.protocol.triggers.schedule import next_runs
from muniment.protocol.triggers.typed_data import CRON, EVENT
from muniment.protocol.triggers.words import schedule_in_words
from muniment.protocol.wire import encode
from muniment.service.console.parts import relative, until
from muniment.service.console.words import chain_name, clipped, function_of, grouped, is_active, plain
from muniment.service.http.html.markup import Html, html, strange

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from muniment.chains.catalogue import Chain
    from muniment.protocol.intents.asked import Part
    from muniment.protocol.intents.types import AnyIntent
    from muniment.protocol.triggers.amounts import Money
    from muniment.protocol.triggers.types import Trigger
    from muniment.service.console.words import Tokens

_INPUTS_MAX: Final = 3
# Characters of an input.
_TEXT_MAX: Final = 24
# Digits of 2^256.
_DIGITS_MAX: Final = 78
# Next runs kept, for pages that are read again in the same minute.
_RUNS_KEPT: Final = 4_096
_MINUTE_MS: Final = 60_000


def intent_line(intent: AnyIntent, tokens: Tokens) -> Html:
    """`1.5 USDC → at least 1.4 DAI · Base`; operations after the second are counted."""
    return html("{}", [_part(each, tokens) for each in line_of(intent, tokens.catalogue)])


def _part(part: Part, tokens: Tokens) -> Html:
    if isinstance(part, CallData):
        return function_of(part.data)
    if isinstance(part, Amount):
        return tokens.amount_in_line(part.value, part.token, (part.chain_id,))
    if isinstance(part, TokenName):
        return tokens.name(part.token, (part.chain_id,))
    return plain(part) if isinstance(part, Address) else html("{}", part)


def trigger_line(trigger: Trigger, tokens: Tokens, chains: Mapping[int, Chain]) -> Html | None:
    """The inputs of a trigger: chains and tokens by name, all amounts in units, the rest as far as there is room.

    None if it has none.
    """
    kinds = kinds_of_inputs(trigger.types)
    places = chains_of(trigger.input, kinds)
    money = {each.names[0]: each for each in money_of(trigger.input, kinds, tokens.catalogue)}
    paired = {name for each in money.values() for name in each.names[1:]}
    amounts = {name for name, each in money.items() if each.figure}
    others = [name for name in trigger.input if name not in paired and name not in amounts]
    left = set(others[max(_INPUTS_MAX - len(amounts), 0) :])
    shown = [
        _money(money[name], kinds, tokens)
        if name in money
        else html("{}", chain_name(places[name], chains))
        if places.get(name) in chains
        else html("{} {}", strange(name), _input(value, kinds.get(name, ""), tokens, places.values()))
        for name, value in trigger.input.items()
        if name not in paired and name not in left
    ]
    if not trigger.input:
        return None
    more = html(" · {} more", len(left)) if left else None
    return html("{}{}", [html("{}{}", " · " if number else "", each) for number, each in enumerate(shown)], more)


def _money(money: Money, kinds: Mapping[str, str], tokens: Tokens) -> Html:
    """`1.5 USDC (1500000)`, after the name of the input if that says more; a Token names its chain."""
    name = money.names[0]
    has_chain = kinds[money.names[-1]] != "address"
    places = " and ".join(tokens.catalogue.chain(each) for each in money.chain_ids) if has_chain else ""
    return html(
        "{}{}{}", html("{} ", strange(name)) if name != "amount" else None, tokens.money(money),
        html(" · {}", places) if places else None,
    )  # fmt: skip


def _input(value: Any, kind: str, tokens: Tokens, named: Collection[int]) -> Html:
    """Any other input by its type; `named` are the chains that the inputs name, on which an address may be a token."""
    if kind == "address":
        return tokens.name(Address.parse(str(value)), named)
    text = value if isinstance(value, str) else encode(value).decode()
    if kind != "string" and _is_amount(text):
        return html("{}", grouped(int(text)))
    return strange(clipped(text, _TEXT_MAX))


def _is_amount(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= _DIGITS_MAX


def when(config: Mapping[str, Any], chains: Mapping[int, Chain]) -> Html:
    """The start condition of a run: a schedule in words if there are any, the event and its chain, or once."""
    if config["type"] == CRON:
        schedule = str(config["schedule"])
        words = schedule_in_words(schedule)
        return html('<span title="{}">{}</span>', schedule, words) if words else html("<code>{}</code>", schedule)
    if config["type"] != EVENT:
        return html("once")
    return html("on {} · {}", event_name(config["topics"]) or "an event", chain_name(int(config["chainId"]), chains))


def next_run(trigger: Trigger, now_ms: int) -> Html | None:
    """When an active trigger runs next, if time alone decides it."""
    if is_active(trigger, now_ms) != "active":
        return None
    if trigger.config["type"] == CRON:
        run_ms = next_run_ms(trigger, now_ms)
        return _next_in(run_ms, now_ms) if run_ms else html("next run: none before it ends")
    start_ms = int(trigger.config.get("startDate", 0))
    return _next_in(start_ms, now_ms) if start_ms > now_ms else None


def _next_in(run_ms: int, now_ms: int) -> Html:
    """`next in 2 hours`."""
    return html("{} {}", until("next", "due", run_ms), relative(run_ms, now_ms))


def next_run_ms(trigger: Trigger, now_ms: int) -> int | None:
    """When a trigger with a schedule runs next; None if it ends before."""
    return _next_run(str(trigger.config["schedule"]), now_ms - now_ms % _MINUTE_MS, trigger.end_date)


@lru_cache(maxsize=_RUNS_KEPT)
def _next_run(schedule: str, minute_ms: int, end_ms: int) -> int | None:
    """The first run after a minute; schedules have whole minutes."""
    return next(iter(next_runs(schedule, minute_ms, 1, end_ms)), None)
