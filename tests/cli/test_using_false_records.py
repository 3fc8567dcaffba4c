"""Records of a service that no honest one has: what commands show of them, and with which status they end."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from builders import Wallet
from middle import Answered, Asked, Behaviour, Forward, before
from service import Service
from using import Person, draft

UNKNOWN_CID = "QmV2xSyG76zpH98n3aZfr4FVMwC64nbKnQ13vEjyHidmMZ"
RAW_CID = "bafkreifzjut3te7nhyekklss27nh3k72ysco7y32koao5eei66wof36n5e"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with Service(tmp_path_factory.mktemp("false") / "data") as service:
        yield service


@pytest.fixture
def person(served: Service, tmp_path: Path) -> Person:
    return Person(served, tmp_path / "home", Wallet(1_999))


def changing(**members: object) -> Behaviour:
    """A registry that shows other members of its records."""

    def behave(asked: Asked, forward: Forward) -> Answered:
        answer = forward()
        if "/ipfs/" in asked.target or "json" not in answer.headers.get("content-type", ""):
            return answer
        shown = json.loads(answer.content)
        for record in shown if isinstance(shown, list) else [shown]:
            record.update({name: members[name] for name in members if name in record})
        return answer._replace(content=json.dumps(shown).encode())

    return behave


def test_a_malformed_time_is_shown_unchanged(person: Person, served: Service, tmp_path: Path) -> None:
    cid = person.deployed(tmp_path / "build")
    sig = person.json("triggers", "create", *draft(cid))["sig"]
    for moment in ("2026-13-45T99:99:99.999Z", "2026-11-20T19:48:00.123Z\n"):
        with before(served.url) as middle, middle.behaving(changing(createdAt=moment)):
            for command in (["triggers", "show", sig], ["triggers", "list"], ["functions", "show", cid]):
                assert person.done(*command, "--url", middle.url)
                assert moment[:10] in person.done(*command, "--columns", "--url", middle.url)


def test_a_trigger_of_a_cid_that_no_function_has_is_forged(person: Person, served: Service, tmp_path: Path) -> None:
    cid = person.deployed(tmp_path / "build")
    sig = person.json("triggers", "create", *draft(cid))["sig"]
    with before(served.url) as middle, middle.behaving(changing(functionCid=RAW_CID)):
        for command in (["triggers", "show", sig], ["triggers", "list"]):
            result = person.run(*command, "--url", middle.url)
            assert (result.exit_code, result.stderr[:14]) == (5, "Error: FORGED:"), (command, result.output)
        verified = person.run("verify", "--url", middle.url)
        assert (verified.exit_code, "intents: " in verified.stdout) == (5, True), verified.output


def test_a_function_that_a_service_lists_and_lacks_is_one_of_the_wrong_ones(
    person: Person, served: Service, tmp_path: Path
) -> None:
    person.deployed(tmp_path / "build")
    for other in (UNKNOWN_CID, RAW_CID):
        with before(served.url) as middle, middle.behaving(changing(CID=other)):
            verified = person.run("verify", "--url", middle.url)
        assert (verified.exit_code, "intents: " in verified.stdout) == (5, True), verified.output


def test_a_signature_under_another_name_may_be_of_a_registry_with_another_name(person: Person, tmp_path: Path) -> None:
    cid = person.deployed(tmp_path / "build")
    sig = person.json("triggers", "create", *draft(cid))["sig"]
    refused = person.run("triggers", "show", sig, "--protocol", "Acme")
    assert refused.exit_code == 5
    assert "under the name Acme" in refused.stderr
    assert "--protocol" in refused.stderr
