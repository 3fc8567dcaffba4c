"""When a trigger runs: the options that say it, and the configuration that they make."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

import click

from muniment.cli.options import span_ms

Command = TypeVar("Command", bound=Callable[..., Any])
_END: Final = "90d"
_DELTA: Final = "5m"
# Options of which a draft has exactly one, by their parameters.
_KINDS: Final = {
    "schedule": "--schedule", "on_event": "--on-event", "is_once": "--once", "config_json": "--config",
}  # fmt: skip
# Options that belong to some kinds.
_PARTS: Final = {
    "topics": ("--topic", {"on_event"}), "at": ("--at", {"is_once"}),
    "delta": ("--delta", {"schedule", "on_event", "is_once"}), "end": ("--end", {"schedule", "on_event", "is_once"}),
}  # fmt: skip
_TOPIC: Final = re.compile(r"([1-3])=0x([0-9a-fA-F]{64}|[0-9a-fA-F]{40})")
_TOPIC_DIGITS: Final = 64


def when_options(command: Command) -> Command:
    """Add the options that say when a trigger runs, and until when."""
    for option in (
        click.option("--end", show_default=_END, help="When it ends: 30d, 12h, 2027-01-31 or never."),
        click.option("--delta", show_default="interval of the schedule, at most 5m", help="How late a run may start."),
        click.option("--config", "config_json", metavar="JSON", help="The configuration, with delta and endDate."),
        click.option("--at", metavar="TIME", help="With --once: not before 2027-01-31T12:00, or 12h from now."),
        click.option("--once", "is_once", is_flag=True, help="Run once, as soon as possible."),
        click.option("--topic", "topics", metavar="N=HEX", multiple=True,
                     help="With --on-event: topic 1, 2 or 3 is this one, or one of several; an address may be short."),
        click.option("--on-event", metavar="CHAIN:CONTRACT:EVENT",
                     help="Run for each event: 8453:0x…:'Transfer(address,address,uint256)'."),
        click.option("--schedule", help="Run at these times: five fields of cron in UTC, '0 */6 * * *'."),
    ):  # fmt: skip
        command = option(command)
    return command


def given_options(flags: Mapping[str, Any]) -> list[str]:
    """Those of the options that were given."""
    names = {**_KINDS, **{name: option for name, (option, _) in _PARTS.items()}}
    return [option for name, option in names.items() if flags[name]]


def config_of(flags: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration that the options say. Raises `ValueError`, `Refusal`."""
    kinds = [name for name in _KINDS if flags[name]]
    if not kinds:
        raise ValueError(f"say when it runs: one of {', '.join(_KINDS.values())}")
    if len(kinds) > 1:
        raise ValueError(f"{' and '.join(_KINDS[name] for name in kinds)} exclude each other: give one of them")
    for name, (option, of) in _PARTS.items():
        if flags[name] and kinds[0] not in of:
            raise ValueError(f"{option} does not go with {_KINDS[kinds[0]]}, but with {' and '.join(_options(of))}")
    if flags["config_json"]:
        return json.loads(flags["config_json"])
    end = end_ms(flags["end"] or _END)
    if flags["end"] != "never" and end <= time.time_ns() // 1_000_000:
        raise ValueError(f"--end {flags['end']} is in the past")
    shared = {"delta": flags["delta"] or _usual(flags["schedule"]), "endDate": end}
    if flags["schedule"]:
        return {"type": 0, "schedule": flags["schedule"], **shared}
    if flags["on_event"]:
        return {"type": 1, **_event(flags["on_event"], flags["topics"]), **shared}
    return {"type": 2, **_start(flags["at"], end), **shared}


def _usual(schedule: str | None) -> str:
    """How late a run may be unless its owner says otherwise. A schedule that is none is refused later, by name."""
    from muniment.protocol.errors import InvalidConfig
    from muniment.protocol.triggers.schedule import usual_delta

    try:
        return usual_delta(schedule) if schedule else _DELTA
    except InvalidConfig:
        return _DELTA


def _options(kinds: set[str]) -> list[str]:
    return [option for name, option in _KINDS.items() if name in kinds]


def _event(text: str, given: tuple[str, ...]) -> dict[str, Any]:
    """The chain, the contract and the topics of an event."""
    from muniment.protocol.evm.address import Address
    from muniment.protocol.evm.event_signature import event_topic

    chain, *rest = text.split(":")
    if len(rest) != 2 or not (chain.isascii() and chain.isdigit()):  # noqa: PLR2004 - contract and event
        raise ValueError(f"--on-event {text}: give CHAIN:CONTRACT:EVENT, 8453:0x…:'Transfer(address,address,uint256)'")
    contract, signature = rest
    topics: list[list[str]] = [[event_topic(signature)]]
    for each in given:
        found = _TOPIC.fullmatch(each)
        if found is None:
            raise ValueError(f"--topic {each}: give 1, 2 or 3, and 64 hex digits or an address: 1=0x…")
        position = int(found[1])
        topics += [[] for _ in range(len(topics), position + 1)]
        topics[position].append(f"0x{found[2].lower().zfill(_TOPIC_DIGITS)}")
    return {"chainId": int(chain), "contract": Address.parse(contract), "topics": topics}


def event_hash(flags: Mapping[str, Any]) -> list[str]:
    """A line that says which topic is the hash of the event that was given by name.

    No line without one, nor for an event that the preview names by itself.
    """
    from muniment.protocol.evm.event_signature import event_topic
    from muniment.protocol.evm.topics import topic_in_words

    if not flags["on_event"]:
        return []
    signature = flags["on_event"].split(":")[-1]
    topic = event_topic(signature)
    return [] if topic_in_words(0, topic) else [f"Topic 0, {topic}, is the hash of the event {signature}."]


def _start(at: str | None, end: int) -> dict[str, int]:
    if at is None:
        return {"startDate": 0}
    start = _time_ms("--at", at, "12h, or a date such as 2027-01-31T12:00")
    if 0 < end < start:
        raise ValueError(f"--at {at} is after the end: give a later --end")
    return {"startDate": start}


def end_ms(text: str) -> int:
    """Milliseconds since 1970 of `never` (0), of a span from now, or of a date in UTC. Raises `ValueError`."""
    return 0 if text == "never" else _time_ms("--end", text, "30d, 12h, a date such as 2027-01-31, or never")


def _time_ms(option: str, text: str, forms: str) -> int:
    if (span := span_ms(text)) is not None:
        return time.time_ns() // 1_000_000 + span
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{option} {text}: give {forms}") from None
    return round(at.replace(tzinfo=at.tzinfo or UTC).timestamp() * 1000)
