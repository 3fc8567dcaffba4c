"""Records in words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

from muniment.console.parts import identifier
from muniment.console.tokens import grouped, units
from muniment.evm.address import Address
from muniment.http.html.markup import Html, html, strange
from muniment.intents.types import Intent
from muniment.triggers.typed_data import CRON, EVENT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from muniment.chains.catalogue import Chain
    from muniment.intents.types import AnyIntent
    from muniment.triggers.types import Trigger

_FIRST_OPS: Final = ("Swap", "Transfer", "EVM call", "SVM call")
_SECOND_OPS: Final = ("Swap", "Transfer", "Call", "Cross-chain swap", "Dynamic call")
_UNITS: Final = {"s": "second", "m": "minute", "h": "hour", "d": "day", "w": "week"}
_DAYS: Final = ("Sundays", "Mondays", "Tuesdays", "Wednesdays", "Thursdays", "Fridays", "Saturdays", "Sundays")
_WEEKDAYS: Final = {
    **{str(number): f"on {name}" for number, name in enumerate(_DAYS)}, "1-5": "on Mondays to Fridays",
}  # fmt: skip
_DAYS_OF_EVERY_MONTH: Final = 28
# 2^256 has 78 digits; a sign may come before them.
_DIGITS_MAX: Final = 79
_WEI: Final = 10**18
# Amounts from here on are probably in the smallest unit of a token of 18 decimals: a hint beside the number.
_HINTED_FROM: Final = 10**14


def is_active(trigger: Trigger, now_ms: int) -> str:
    """`active`, `deactivated` or `ended`."""
    if trigger.deactivate_sig:
        return "deactivated"
    return "ended" if 0 < trigger.end_date <= now_ms else "active"


def when(config: Mapping[str, Any]) -> Html:
    """The start condition of a run, in a few words."""
    if config["type"] == CRON:
        return html("<code>{}</code>", str(config["schedule"]))
    return html("event") if config["type"] == EVENT else html("once")


def schedule_in_words(schedule: str) -> str:
    """The common schedules in words, such as `every day at 09:30`; empty for another one."""
    minute, hour, day, month, weekday = schedule.split()
    if month != "*":
        return ""
    if day == weekday == "*":
        return _through_a_day(minute, hour)
    if not (_is_number(minute) and _is_number(hour)):
        return ""
    at = f"at {int(hour):02}:{int(minute):02}"
    if weekday == "*" and _is_number(day) and int(day) <= _DAYS_OF_EVERY_MONTH:
        return f"on day {int(day)} of each month {at}"
    return f"{_WEEKDAYS[weekday]} {at}" if day == "*" and weekday in _WEEKDAYS else ""


def _through_a_day(minute: str, hour: str) -> str:
    if hour == "*" and not _is_number(minute):
        return _every(minute, 60, "minute")
    if not _is_number(minute):
        return ""
    if _is_number(hour):
        return f"every day at {int(hour):02}:{int(minute):02}"
    every = _every(hour, 24, "hour")
    return f"{every} at minute {int(minute)}" if every and int(minute) else every


def _every(field: str, whole: int, unit: str) -> str:
    """`*/15` of 60 minutes as `every 15 minutes`.

    A step that does not divide the whole has no words: between its last run and the first one of the next hour or day
    lies less time than between the others.
    """
    if field == "*":
        return f"every {unit}"
    first, _, step = field.partition("/")
    if first != "*" or not _is_number(step) or int(step) == 0 or whole % int(step):
        return ""
    return f"every {unit}" if int(step) == 1 else f"every {int(step)} {unit}s"


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal()


def delta(text: str) -> str:
    """`10m` as `10 minutes`."""
    count, unit = text[:-1], _UNITS.get(text[-1:], text[-1:])
    return f"{count} {unit}{'' if count == '1' else 's'}"


def kinds_of(intent: AnyIntent) -> list[str]:
    """The kinds of an intent's operations."""
    if isinstance(intent, Intent):
        return [kind_of_first(intent.op)]
    return [_named(_SECOND_OPS, each.op_type) for each in intent.operations]


def kind_of_first(number: int) -> str:
    """The kind of the operation of an intent that has one."""
    return _named(_FIRST_OPS, number)


def second_kind(number: int) -> str:
    """The kind of one of several operations."""
    return _named(_SECOND_OPS, number)


def value_of(value: Any, kind: str, chains: Mapping[int, Chain], name: str) -> Html:
    """An input of a trigger as its type says it: `8453 · Base`, amounts in groups with a hint, texts as they are."""
    if isinstance(value, list):
        inner = kind.rpartition("[")[0]
        items = cast("list[Any]", value)
        return html("<ol>{}</ol>", [html("<li>{}", value_of(each, inner, chains, name)) for each in items])
    if isinstance(value, dict):
        members = cast("dict[str, Any]", value)
        return html(
            '<dl class="facts">{}</dl>',
            [
                html("<dt>{}<dd>{}", key, value_of(each, key if key == "address" else "", chains, key))
                for key, each in members.items()
            ],
        )
    if kind == "address":
        return identifier(str(Address.parse(str(value))), whole=True)
    text = value if isinstance(value, str) else str(value).lower() if isinstance(value, bool) else str(value)
    if text.isdecimal() and kind != "string" and len(text) <= _DIGITS_MAX:
        return _number(int(text), chains, name)
    return strange(text) if kind == "string" else html("<code>{}</code>", strange(text))


def _number(value: int, chains: Mapping[int, Chain], name: str) -> Html:
    if "chain" in name.lower() and value in chains:
        return html("<code>{}</code> · {}", value, chains[value].name)
    if value >= _HINTED_FROM:
        return html('<code>{}</code> <span class="faint">= {} × 10¹⁸</span>', grouped(value), units(value, 18))
    return html("<code>{}</code>", value)


def _named(names: tuple[str, ...], number: int) -> str:
    return names[number] if number < len(names) else f"operation {number}"
