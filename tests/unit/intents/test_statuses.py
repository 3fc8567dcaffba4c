"""The tables of statuses agree with all that must repeat them: types, documents, checks and indexes of both engines."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path
from typing import Any, get_args

import pytest

from each_row import each_row
from muniment.operate.watch import receipts
from muniment.protocol.intents import lifecycle
from muniment.protocol.intents.lifecycle import INTENT_MOVES, PROPOSAL_MOVES, Diagram, Outcome
from muniment.protocol.intents.types import IntentStatus, ProposalStatus
from muniment.service.resources.intents import store
from muniment.service.resources.intents.routes import move_intent

RELAYING = (Path(__file__).parents[3] / "docs" / "use" / "relaying.md").read_text()
LIFE = RELAYING.partition("\n## The life of an intent\n")[2].partition("\n## ")[0]
ENGINES = pytest.mark.parametrize("engine", ["sqlite", "postgres"])


def statuses(literal: object) -> set[str]:
    """The members of an annotated `Literal`."""
    return set(get_args(get_args(literal)[0]))


def words(text: str) -> list[str]:
    """The names in a document's text that stand in backticks."""
    return re.findall(r"`(\w+)`", text)


def migrations(engine: str) -> str:
    """Every migration of an engine, in one text without line ends."""
    scripts = sorted(
        (files("muniment.service.storage") / "migrations" / engine).iterdir(), key=lambda script: script.name
    )
    return " ".join(" ".join(script.read_text() for script in scripts).split())


def predicate(engine: str, index: str) -> str:
    """The rows that a partial index holds."""
    (found,) = re.findall(rf"CREATE INDEX (?:CONCURRENTLY )?{index} ON [^;]*? WHERE ([^;]+);", migrations(engine))
    return found


@each_row(("literal", "table"), [(IntentStatus, INTENT_MOVES), (ProposalStatus, PROPOSAL_MOVES)])
def test_the_type_has_the_statuses_of_the_table(literal: object, table: Diagram) -> None:
    assert statuses(literal) == set(table)


@each_row("table", [INTENT_MOVES, PROPOSAL_MOVES])
def test_every_move_leads_to_a_status_of_the_table(table: Diagram) -> None:
    assert {after for moves in table.values() for after in moves} <= set(table)


@each_row("moves", [INTENT_MOVES, PROPOSAL_MOVES])
def test_a_chain_decides_what_follows_on_submitted(moves: Diagram) -> None:
    assert set(get_args(Outcome)) == set(moves["submitted"]) - {"expired"}


def test_time_ends_every_status_of_an_intent_that_is_not_final() -> None:
    assert set(lifecycle.CAN_EXPIRE) == {status for status, moves in INTENT_MOVES.items() if moves}


def test_the_documented_table_has_the_moves_of_an_intent() -> None:
    rows = [line.split("|") for line in LIFE.splitlines() if line.startswith("| `")]
    documented = {status: set(words(following)) for _, names, _, following, _ in rows for status in words(names)}
    assert documented == {status: set(moves) for status, moves in INTENT_MOVES.items()}


def test_the_drawing_has_every_status_of_an_intent_once() -> None:
    drawing = LIFE.split("```")[1]
    drawn = [word for word in re.findall(r"\w+", drawing) if word in INTENT_MOVES]
    assert sorted(drawn) == sorted(INTENT_MOVES)


def test_the_sentence_about_proposals_names_every_status() -> None:
    (sentence,) = [line for line in LIFE.splitlines() if line.startswith("A proposal is ")]
    assert set(words(sentence)) == set(PROPOSAL_MOVES)


def test_the_operation_that_moves_an_intent_describes_the_moves() -> None:
    described = " ".join((move_intent.handler.__doc__ or "").split())
    steps = [f"{status} to {' or '.join(moves)}" for status, moves in INTENT_MOVES.items() if moves]
    assert f"An intent moves by one step: {', '.join(steps)}." in described


@ENGINES
def test_the_index_of_ends_holds_the_intents_that_can_expire(engine: str) -> None:
    assert store.ENDED.startswith(predicate(engine, "intents_by_end") + " AND ")


@ENGINES
def test_the_index_of_marked_ends_holds_the_intents_that_a_sweep_has_marked(engine: str) -> None:
    assert store.EARLY.startswith(predicate(engine, "intents_by_marked_end") + " AND ")


@ENGINES
def test_the_index_of_claims_holds_the_intents_whose_success_no_chain_has_shown(engine: str) -> None:
    assert predicate(engine, "intents_by_claim") == receipts.CLAIMED


@ENGINES
def test_the_database_checks_the_outcomes_of_chains(engine: str) -> None:
    (listed,) = re.findall(r"CHECK \(outcome IN \(([^)]*)\)\)", migrations(engine))
    assert set(re.findall(r"'(\w+)'", listed)) == set(get_args(Outcome))


@ENGINES
def test_migrations_quote_no_unknown_status(engine: str) -> None:
    columns = r"(?:status|chain_status|standing)"
    of_intents = re.sub(r"CREATE INDEX webhooks_active [^;]*;", "", migrations(engine))
    lists = re.findall(rf"\b{columns} (?:=|<>|IN) (\([^)]*\)|'\w+')", of_intents)
    quoted: list[Any] = [status for each in lists for status in re.findall(r"'(\w+)'", each)]
    assert quoted
    assert set(quoted) <= set(INTENT_MOVES)
