"""Two intents of one nonce are reported by every command that takes them; one command frees a nonce."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from copying_world import Place, copy, new_database
from muniment.cli.main import main
from muniment.protocol.errors import NonceTaken
from operator_client import HEX32, OperationsDraft
from postgres import Cluster
from recorded_intents import AUTHOR, record_intents

# Long ago, so both are records of the past.
DRAFTS = [
    OperationsDraft(deadline=1_700_000_000 + n, members={"maxFees": [{"token": "0x" + "22" * 20, "amount": str(n)}]})
    for n in (1, 2)
]
# Whoever came last holds the nonce, whose time was over.
LINE = f"two intents share a nonce: {DRAFTS[0].hash} and {DRAFTS[1].hash}"


def run(*words: object, data: Path) -> Result:
    return CliRunner().invoke(main, [*map(str, words), "--data-dir", str(data)])


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A registry with two intents of one nonce."""
    data = tmp_path / "data"
    assert run("migrate", data=data).exit_code == 0
    record_intents(data, *(each.body for each in DRAFTS))
    return data


def test_verify_names_them_and_all_is_well(data: Path) -> None:
    result = run("verify", data=data)
    assert result.exit_code == 0
    assert LINE in result.stdout.splitlines()


def test_restore_takes_them_and_says_so(data: Path, tmp_path: Path) -> None:
    assert run("backup", tmp_path / "backup", data=data).exit_code == 0
    result = run("restore", tmp_path / "backup", "--no-rotate", data=tmp_path / "new")
    assert result.exit_code == 0, result.output
    assert LINE in result.stderr.splitlines()
    assert recorded(tmp_path / "new") == recorded(data)


def recorded(data: Path) -> list[Any]:
    with closing(sqlite3.connect(data / "muniment.db")) as database:
        return [database.execute(f"SELECT * FROM {table}").fetchall() for table in ("intents", "intent_nonces")]


@pytest.mark.parametrize("to", ["sqlite", "postgres"])
def test_a_copy_takes_them_and_says_so(data: Path, to: str, cluster: Cluster, tmp_path: Path) -> None:
    source = Place.at("sqlite:///muniment.db", data)
    if to == "sqlite":
        target = Place.at("sqlite:///new.db", data)
    else:
        target = asyncio.run(new_database(cluster, f"nonces-{tmp_path.name}", data))
    result = copy(source, target)
    assert result.exit_code == 0, result.output
    assert LINE in result.stderr.splitlines()
    assert target.rows() == source.rows()


def audit(data: Path) -> list[Any]:
    entries = json.loads(run("operators", "audit", "--json", data=data).stdout)
    return [[each["operator"], each["action"], each["intent"]] for each in entries if each["operator"] != AUTHOR]


def test_a_nonce_is_freed_by_a_command_that_is_audited(tmp_path: Path) -> None:
    data = tmp_path / "data"
    assert run("migrate", data=data).exit_code == 0
    first, second = (OperationsDraft(deadline=4_000_000_000 + n) for n in (1, 2))
    record_intents(data, first.body)
    with pytest.raises(NonceTaken, match=f"the intent {first.hash} has the same triggerSig"):
        record_intents(data, second.body)

    assert run("intents", "release", second.hash, data=data).exit_code == 1
    assert audit(data) == []
    result = run("intents", "release", first.hash, data=data)
    assert (result.exit_code, result.stdout) == (0, f"the nonce of {first.hash} is free\n")
    assert audit(data) == [["(local)", "release nonce", first.hash]]
    again = run("intents", "release", first.hash, data=data)
    assert again.exit_code == 1
    assert "the intent holds no nonce" in again.stderr
    assert len(audit(data)) == 1
    record_intents(data, second.body)


def test_only_the_hash_of_a_recorded_intent_is_taken(data: Path) -> None:
    for given, says in ((HEX32, "no intent is recorded under this hash"), ("0x12", "hex")):
        result = run("intents", "release", given, data=data)
        assert result.exit_code == 1
        assert says in result.stderr
