"""`muniment verify` computes the hash of every intent and proposal again."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from muniment.cli.main import main
from operator_client import FAR_DEADLINE, OperationsDraft, operations_proposal
from recorded_intents import intent, proposal, record_intents


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    """Two intents, one of them with two proposals."""
    data = tmp_path / "data"
    assert CliRunner().invoke(main, ["migrate", "--data-dir", str(data)]).exit_code == 0
    record_intents(data, intent(1, proposals=[proposal(1), proposal(2)]), intent(2))
    return data


def verify(data_dir: Path) -> Result:
    return CliRunner().invoke(main, ["verify", "--data-dir", str(data_dir)])


def tampered(data_dir: Path, table: str, old: str, new: str) -> None:
    with sqlite3.connect(data_dir / "muniment.db") as connection:
        found = connection.execute(
            f"UPDATE {table} SET record = replace(record, ?, ?) WHERE record LIKE '%' || ? || '%'", (old, new, old)
        )
        assert found.rowcount == 1
    connection.close()


def test_intents_as_they_were_hashed_are_well(data_dir: Path) -> None:
    result = verify(data_dir)
    assert result.exit_code == 0, result.output
    assert "intents and proposals: 4 checked" in result.output.splitlines()


@pytest.mark.parametrize(
    ("table", "what", "old", "new"),
    [
        ("intents", "intent", intent(2)["nonce"], "0x" + "33" * 32),
        ("intents", "intent", f'{intent(1)["nonce"]}","deadline":"4', f'{intent(1)["nonce"]}","deadline":"5'),
        ("intent_proposals", "proposal", '"0x00000002"', '"0x00000003"'),
    ],
    ids=["nonce", "deadline", "proposal"],
)
def test_content_that_no_longer_has_its_hash_is_named(
    data_dir: Path, table: str, what: str, old: str, new: str
) -> None:
    tampered(data_dir, table, old, new)
    result = verify(data_dir)
    assert result.exit_code == 1
    wrong = [each for each in result.output.splitlines() if each.startswith("WRONG ")]
    assert len(wrong) == 1
    assert wrong[0].startswith(f"WRONG {what} 0x")
    assert wrong[0].endswith("its hash does not match its fields")


def test_a_record_that_is_not_json_is_named(data_dir: Path) -> None:
    tampered(data_dir, "intent_proposals", '"0x00000002"', '"0x')
    assert "its record cannot be read" in verify(data_dir).output


@pytest.fixture
def second_form(data_dir: Path) -> Path:
    """The same registry with an intent of two operations and its proposal."""
    record_intents(data_dir, OperationsDraft(1, FAR_DEADLINE, {"proposals": [operations_proposal(7)]}).body)
    return data_dir


def test_intents_of_the_second_form_are_checked_too(second_form: Path) -> None:
    result = verify(second_form)
    assert result.exit_code == 0, result.output
    assert "intents and proposals: 6 checked" in result.output.splitlines()


@pytest.mark.parametrize(
    ("table", "what", "old", "new"),
    [("intents", "intent", '"opType":4', '"opType":3'), ("intent_proposals", "proposal", f"{7:064x}", f"{8:064x}")],
    ids=["operation", "datas"],
)
def test_what_no_longer_has_its_hash_in_the_second_form_is_named(
    second_form: Path, table: str, what: str, old: str, new: str
) -> None:
    tampered(second_form, table, old, new)
    wrong = [each for each in verify(second_form).output.splitlines() if each.startswith("WRONG ")]
    assert [each.split()[1] for each in wrong] == [what]


@pytest.mark.parametrize(
    ("statement", "fault"),
    [
        ("UPDATE intents SET user_address = zeroblob(20) WHERE seq = 1", "its columns differ from its record"),
        ("UPDATE intents SET deadline = zeroblob(32) WHERE seq = 1", "its columns differ from its record"),
        ("UPDATE intents SET settler = zeroblob(20) WHERE generation = 2", "its columns differ from its record"),
        ("UPDATE intents SET operation_count = 9 WHERE generation = 2", "its columns differ from its record"),
        ("DELETE FROM intent_users WHERE address = (SELECT max(address) FROM intent_users)",
         "rows of intent_users are missing"),
        ("DELETE FROM intent_ops WHERE op_type = 4", "rows of intent_ops are missing"),
    ],
)  # fmt: skip
def test_what_listings_and_the_watcher_find_an_intent_by_is_compared_with_its_record(
    second_form: Path, statement: str, fault: str
) -> None:
    with sqlite3.connect(second_form / "muniment.db") as connection:
        assert connection.execute(statement).rowcount == 1
    connection.close()
    result = verify(second_form)
    assert result.exit_code == 1
    wrong = [each for each in result.output.splitlines() if each.startswith("WRONG ")]
    assert [each.partition(": ")[2] for each in wrong] == [fault]
