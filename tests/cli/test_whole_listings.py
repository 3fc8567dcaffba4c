"""`intents list` and `runs list` with `--all --json`: every record of several pages, each with every member."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from answers import ok
from intent_bodies import log_body, operations_body
from middle import Answered, Asked, Forward, before
from muniment.cli.client import listing
from muniment.client import Registry
from recorded_intents import intent, proposal
from run_bodies import next_run_of
from service import Service
from using import SAMPLE_INPUT, Person

PAGE = 2
# A listing has fifty of them.
MANY = 55
NOT_FOUND = {
    "type": "/problems/execution-not-found", "title": "Execution not found", "status": 404,
    "code": "execution-not-found", "detail": "no run is recorded under this hash",
}  # fmt: skip


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with Service(tmp_path_factory.mktemp("served") / "data") as service:
        yield service


@pytest.fixture(scope="module")
def operator(served: Service) -> Iterator[Registry]:
    with Registry(served.url, operator_key=served.operator_key()) as registry:
        yield registry


@pytest.fixture
def person(served: Service, tmp_path: Path) -> Person:
    return Person(served, tmp_path / "home")


@pytest.fixture(autouse=True)
def _small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "_PAGE_MAX", PAGE)


def answers(url: str, hashes: list[str]) -> list[Any]:
    """What the registry answers about each of them alone, the newest first."""
    return [ok(httpx2.get(f"{url}/{each}")).json() for each in reversed(hashes)]


def test_every_intent_comes_with_all_its_proposals_and_logs(person: Person, operator: Registry) -> None:
    bodies = [
        intent(1, proposals=[proposal(n) for n in range(MANY)]), operations_body(2), intent(3),
        intent(4, logs=[log_body(n) for n in range(MANY)]), intent(5),
    ]  # fmt: skip
    hashes = [str(operator.intents.put(body).hash) for body in bodies]
    records = person.records("intents", "list", "--all", "--json")
    assert records == answers(f"{person.service.url}/intents", hashes)
    assert [(len(each["proposals"]), len(each["logs"])) for each in records[1::3]] == [(0, MANY), (MANY, 0)]
    some = person.records("intents", "list", "--limit", "5", "--json")
    assert [len(each["logs"]) for each in some] == [0, 50, 0, 0, 0]


@pytest.fixture
def trigger(person: Person, tmp_path: Path) -> dict[str, Any]:
    inputs = [part for name, value in SAMPLE_INPUT.items() for part in ("--input", f"{name}={value}")]
    cid = person.deployed(tmp_path / "build")
    return person.json("triggers", "create", "--function", cid, "--schedule", "* * * * *", *inputs)


def test_every_run_comes_with_all_that_it_read_and_logged(
    person: Person, operator: Registry, trigger: dict[str, Any]
) -> None:
    outputs = [[{"hash": "0x" + f"{n:02x}" * 32}] for n in range(4)]
    runs = [next_run_of(trigger, result="intents", outputs=each) for each in outputs]
    runs.append(next_run_of(trigger, logs=[f"line {n}" for n in range(MANY)]))
    hashes = [str(operator.runs.record(run).hash) for run in runs]
    records = person.records("runs", "list", "--all", "--json")
    assert records == answers(f"{person.service.url}/executions", hashes)
    assert (len(records[0]["logs"]), len(records[0]["inputs"])) == (MANY, 1)
    assert "inputs" not in person.records("runs", "list", "--limit", "1", "--json")[0]

    def without_the_newest(asked: Asked, forward: Forward) -> Answered:
        return forward() if hashes[-1] not in asked.target else gone

    gone = Answered(404, {"content-type": "application/problem+json"}, json.dumps(NOT_FOUND).encode())
    with before(person.service.url) as middle, middle.behaving(without_the_newest):
        assert person.records("runs", "list", "--all", "--json", "--url", middle.url) == records[1:]
