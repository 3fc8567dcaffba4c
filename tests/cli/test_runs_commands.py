"""`muniment runs` and `muniment verify` against a real service, and the removal of old runs."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from test_using_false_records import changing

import warm
from builders import Wallet
from middle import before
from muniment.client import Registry
from run_bodies import next_run_of
from service import Service
from using import SAMPLE_INPUT, Person, intent, operator_key

NUMBERS = count(2_000)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with Service(tmp_path_factory.mktemp("runs") / "data") as service:
        yield service


@pytest.fixture(scope="module")
def key(served: Service) -> str:
    return operator_key(served)


@pytest.fixture
def person(served: Service, tmp_path: Path) -> Person:
    return Person(served, tmp_path / "home", Wallet(next(NUMBERS)))


@pytest.fixture
def trigger(person: Person, tmp_path: Path) -> dict[str, Any]:
    """A trigger that is due every minute."""
    inputs = [part for name, value in SAMPLE_INPUT.items() for part in ("--input", f"{name}={value}")]
    cid = person.deployed(tmp_path / "build")
    return person.json("triggers", "create", "--function", cid, "--schedule", "* * * * *", *inputs)


def recorded(served: Service, key: str, trigger: dict[str, Any], **members: Any) -> str:
    """The hash of a run that was recorded."""
    with Registry(served.url, operator_key=key) as registry:
        return str(registry.runs.record(next_run_of(trigger, **members)).hash)


def test_what_was_not_carried_out_is_said_in_every_list(
    person: Person, served: Service, key: str, trigger: dict[str, Any]
) -> None:
    person.environment["MUNIMENT_OPERATOR_KEY"] = key
    sig = trigger["sig"]
    members = [{"deadline": "1600000000"}, {"deadline": "1600000000"}, {"status": "failed"}, {}]
    for number, each in enumerate(members):
        body = {**intent(800 + number), "configSig": sig, "user": person.wallet.address, **each}
        person.done("intents", "put", "-", stdin=json.dumps(body))
    recorded(served, key, trigger, result="stopped", reason={"code": "abort", "text": "too dear"})
    said = "3 of the newest 4 intents not carried out: no solver made an offer (2) · its transaction failed"
    declined = "1 of 1 run declined by the function"
    shown = person.done("triggers", "show", sig, "--columns")
    assert said in shown
    assert declined in shown
    listed = person.run("intents", "list", "--trigger", sig, "--columns")
    assert said in listed.stderr
    assert listed.stdout.count("no solver made an offer") == 2
    ran = person.run("runs", "list", "--trigger", sig, "--columns")
    assert declined in ran.stderr
    assert ran.stdout.splitlines()[1].split()[2:5] == ["declined", "too", "dear"]
    hash_ = person.records("intents", "list", "--trigger", sig, "--status", "expired")[0]["hash"]
    assert "expired, not carried out: no solver made an offer" in person.done("intents", "show", hash_, "--columns")
    assert person.run("intents", "list", "--trigger", sig).stderr == ""  # programs count themselves
    nothing = person.run("intents", "list", "--trigger", "0x" + "77" * 64 + "1b", "--columns")
    assert "no intents: they come of the runs of triggers" in nothing.stderr


def test_runs_are_listed_shown_and_the_newest_is_found(
    person: Person, served: Service, key: str, trigger: dict[str, Any]
) -> None:
    first = recorded(served, key, trigger)
    second = recorded(served, key, trigger, result="stopped", reason={"code": "abort", "text": "too dear"})
    mine = ["runs", "list", "--trigger", trigger["sig"]]
    assert [each["hash"] for each in person.records(*mine)] == [second, first]
    assert [each["hash"] for each in person.records(*mine, "--limit", "1")] == [second]
    assert [each["hash"] for each in person.records(*mine, "--result", "nothing")] == [first]
    assert [each["hash"] for each in person.records(*mine, "--latest")] == [second]
    assert person.json("runs", "show", first)["conflicts"] == [second]
    shown = person.done("runs", "show", second, "--columns")
    assert "stopped, abort: the function called abort: too dear (as the service says)" in shown
    unknown = person.run("runs", "show", "0x" + "ab" * 32)
    assert (unknown.exit_code, "muniment runs list" in unknown.stderr) == (1, True)


def test_verify_checks_every_run_whole(person: Person, served: Service, key: str, trigger: dict[str, Any]) -> None:
    recorded(served, key, trigger)
    done = person.done("verify", "--url", served.url)
    (line,) = [each for each in done.splitlines() if each.startswith("runs: ")]
    assert int(line.split()[1]) > 0
    with before(served.url) as middle, middle.behaving(changing(context={"consensusThreshold": 9, "settlers": []})):
        verified = person.run("verify", "--url", middle.url)
    assert (verified.exit_code, "shows other inputs than its relayer recorded" in verified.stdout) == (5, True)
    stored = warm.run("verify", data=served.data_dir)
    assert (stored.returncode, line in stored.stdout.splitlines()) == (0, True), stored.stdout


def test_old_runs_without_intents_are_removed(served: Service, key: str, trigger: dict[str, Any]) -> None:
    old = recorded(served, key, trigger)
    kept = recorded(served, key, trigger, result="intents", outputs=[{"hash": "0x" + "ab" * 32}])
    young = recorded(served, key, trigger, result="stopped", reason={"code": "abort", "text": ""})
    assert warm.run("runs", "prune", "--older", "1h", data=served.data_dir).stdout == "0 runs removed\n"
    with sqlite3.connect(served.data_dir / "muniment.db") as database:
        for each in (old, kept):
            database.execute("UPDATE runs SET created_at_ms = 1 WHERE hash = ?", (bytes.fromhex(each[2:]),))
    database.close()
    done = warm.run("runs", "prune", "--older", "1h", "--json", data=served.data_dir)
    assert done.stdout == '{"removed":1}\n'
    with Registry(served.url) as registry:
        assert {each.hash for each in registry.runs.list(trigger_sig=trigger["sig"])} == {kept, young}


@pytest.mark.parametrize("span", ["", "30", "d", "0d", "-1d", "30 d", "30m"])
def test_a_span_that_is_none_is_refused(served: Service, span: str) -> None:
    result = warm.run("runs", "prune", "--older", span, data=served.data_dir)
    assert (result.returncode, "give 30d, 12h, 8w or 1y" in result.stderr) == (2, True)
