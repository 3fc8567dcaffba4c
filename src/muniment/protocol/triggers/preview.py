"""Previews: a trigger in plain words, before its owner signs it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from muniment.protocol.evm.topics import topic_in_words
from muniment.protocol.evm.typed_data import Domain
from muniment.protocol.tokens import Catalogue
from muniment.protocol.triggers.amounts import money_of
from muniment.protocol.triggers.rules import SECONDS_BELOW
from muniment.protocol.triggers.schedule import next_runs
from muniment.protocol.triggers.typed_data import CRON, EVENT
from muniment.protocol.triggers.types import Preview, Values
from muniment.protocol.triggers.words import delta_in_words, fee_in_words, schedule_in_words, time_in_words
from muniment.protocol.visible import visible
from muniment.protocol.wire import DATED_MS_MAX, encode, iso_time

RUNS_SHOWN: Final = 5


def preview_of(
    values: Values, kinds: Mapping[str, str], domain: Domain, now_ms: int, catalogue: Catalogue
) -> Preview:  # fmt: skip
    """The preview of a trigger with these `values`, which have passed every check.

    `kinds` are the types of its inputs by name.
    """
    config = values.config
    end_ms = int(config["endDate"])
    runs = next_runs(config["schedule"], now_ms, RUNS_SHOWN, end_ms) if config["type"] == CRON else []
    inputs = _inputs(values.input, kinds, catalogue)
    end = f"until {time_in_words(end_ms)}" if end_ms else "without an end"
    limit = values.execution_fee_limit
    fee = "without a limit on the fee of a run" if limit == "0" else f"with a fee of at most {fee_in_words(limit)}"
    validations = f"{values.min_validations} validation{'s' if values.min_validations > 1 else ''}"
    summary = [
        f"Function {values.function_cid} may run in your name: {_when(config)}, {end}.",
        f"A run may start up to {delta_in_words(config['delta'])} late.",
        *(inputs or ["It has no inputs."]),
        f"Each run needs at least {validations}, {fee}.",
        f"This is version {values.version} of the trigger, under the domain {domain.name}.",
    ]
    return Preview(
        summary=[visible(each) for each in summary],
        next_runs=[iso_time(run) for run in runs],
        warnings=[visible(each) for each in _warnings(values, domain, runs)],
    )


def _inputs(inputs: Mapping[str, Any], kinds: Mapping[str, str], catalogue: Catalogue) -> list[str]:
    """A sentence for each input: amounts in units with the base units, other values as they are signed."""
    said = {name: encode(value).decode() for name, value in inputs.items()}
    for each in money_of(inputs, kinds, catalogue):
        name, token_name = each.names[0], each.names[-1]
        token = each._replace(amount=None, whole="")
        if token_name != name or not each.figure:
            said[token_name] += f" ({token.words(catalogue)})" if each.unit else ""
        if each.figure:
            signed = f", signed as {said[name]}" if each.whole else ""
            said[name] = f"{each.words(catalogue)}{signed}"
    return [f"Its input {name} is {words}." for name, words in said.items()]


def _when(config: Mapping[str, Any]) -> str:
    if config["type"] == CRON:
        words = schedule_in_words(config["schedule"])
        return f"{words} ({config['schedule']}, UTC)" if words else f"on the schedule {config['schedule']} (UTC)"
    if config["type"] == EVENT:
        given = [f"topic {position} {_choices(position, choices)}" for position, choices in enumerate(config["topics"])]
        topics = f" with {', '.join(given)}" if given else ""
        return f"whenever contract {config['contract']} on chain {config['chainId']} logs an event{topics}"
    start_ms = int(config.get("startDate", 0))
    return f"once, from {time_in_words(start_ms)} on" if start_ms else "once, as soon as possible"


def _choices(position: int, choices: list[str]) -> str:
    said = [f"{each} ({words})" if (words := topic_in_words(position, each)) else each for each in choices]
    return f"among {', '.join(said)}" if said else "anything"


def _warnings(values: Values, domain: Domain, runs: list[int]) -> list[str]:
    warnings: list[str] = []
    if int(values.config["endDate"]) == 0:
        warnings.append("It never ends: only deactivating it stops it.")
    for name, what in (("startDate", "begins"), ("endDate", "ends")):
        time_ms = int(values.config.get(name, 0))
        if time_ms > DATED_MS_MAX:
            warnings.append(f"It {what} after the year 9999. Are these microseconds? Write {time_ms // 1000}.")
        elif 0 < time_ms < SECONDS_BELOW:
            warnings.append(f"It {what} before the year 2002. Are these seconds? Write {time_ms * 1000}.")
    if values.execution_fee_limit == "0":
        warnings.append("It sets no limit on the fee of a run.")
    if values.config["type"] == CRON and not runs:
        warnings.append("It ends before its first run is due.")
    warnings.append(
        f"Your signature names this registry by {domain.name!r} alone. Every registry of that name accepts it: anybody "
        "may register the trigger there, and deactivating it here does not stop it there."
    )
    return warnings
