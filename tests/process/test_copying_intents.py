"""The program of docs/use/relaying.md that copies intents to another registry."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from msgspec.structs import replace

import warm
from answers import ok
from intent_bodies import intent_body, log_body, operations_body, operations_proposal_body, proposal_body
from muniment.client import Registry
from service import Service

PAGE = (Path(__file__).parents[2] / "docs" / "use" / "relaying.md").read_text("utf-8")
[PROGRAM] = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
TRANSACTION = "0x" + "0a" * 32
# A listing has fifty of them.
MANY = 55


@pytest.fixture
def other(tmp_path: Path) -> Iterator[Service]:
    with Service(tmp_path / "other") as service:
        yield service


def copied(source: Service, target: Service, key: str) -> subprocess.CompletedProcess[str]:
    """Run the program of the page."""
    program = PROGRAM
    for printed, url in (("https://old.example.org", source.url), ("http://127.0.0.1:8787", target.url)):
        assert program.count(printed) == 1
        program = program.replace(printed, url)
    return warm.run(program=["-c", program], environment={"MUNIMENT_OPERATOR_KEY": key})


def answers(service: Service) -> list[Any]:
    """What a registry answers about each intent, in the order of arrival."""
    listed = ok(httpx2.get(f"{service.url}/intents?generation=all&sort=1&limit=100")).json()
    return [ok(httpx2.get(f"{service.url}/intents/{each['hash']}")).json() for each in listed]


def without_arrival(records: list[Any]) -> list[Any]:
    return [{**each, "createdAt": ""} for each in records]


def fill(source: Service) -> None:
    """Record intents of both generations, in several statuses, with many proposals and logs."""
    two = [{"opType": 1, "user": "0x" + "11" * 20, "data": "0x", "events": []}] * 2
    with Registry(source.url, operator_key=source.operator_key()) as registry:
        for body in (
            intent_body(1, proposals=[proposal_body(n) for n in range(MANY)]),
            operations_body(2, operations=two, proposals=[operations_proposal_body(n) for n in range(3)]),
            intent_body(3, status="succeeded", transactionHash=TRANSACTION, executionHash="0xab"),
            intent_body(4, deadline="1600000000", status="enqueued"),
            operations_body(5, deadline="1600000000"),
            intent_body(6, logs=[log_body(n, **({"id": f"é{n}"} if n % 2 else {})) for n in range(MANY)]),
        ):
            hash_ = registry.intents.put(body).hash
        registry.intents.log(hash_, "warning", "without a time")
        registry.intents.move(hash_, "enqueued")


def test_a_copy_has_every_member_and_may_be_made_again(service: Service, other: Service) -> None:
    fill(service)
    key = other.operator_key()
    with Registry(service.url) as old, Registry(other.url, operator_key=key) as new:  # a copy that was interrupted
        first = next(iter(old.intents.list()))
        assert len(first.proposals) == 50
        new.intents.put(first)
    done = copied(service, other, key)
    assert (done.returncode, done.stderr) == (0, "")
    records, before = answers(other), answers(service)
    assert [each["status"] for each in before] == ["created", "created", "succeeded", "expired", "expired", "enqueued"]
    assert without_arrival(records) != records
    # The proposals that came with the second copy stand after those that came with the first.
    for each in (records[0], before[0]):
        each["proposals"].sort(key=lambda proposal: proposal["hash"])
    assert without_arrival(records) == without_arrival(before)
    tags = [httpx2.get(f"{other.url}/intents/{each['hash']}").headers["etag"] for each in records]
    assert copied(service, other, key).returncode == 0
    assert [httpx2.get(f"{other.url}/intents/{each['hash']}").headers["etag"] for each in records] == tags


def test_an_intent_that_is_larger_than_a_request_goes_in_parts(service: Service, other: Service) -> None:
    key = other.operator_key()
    with Registry(service.url, operator_key=service.operator_key()) as old:
        hash_ = old.intents.put(intent_body(1)).hash
        for number in range(80):
            old.intents.log(hash_, "info", f"{number} ".ljust(4_000, "x"))
        done = copied(service, other, key)
        assert (done.returncode, "BodyTooLarge: the body has" in done.stderr) == (1, True)
        assert answers(other) == []
        with Registry(other.url, operator_key=key) as new:
            intent = old.intents.get(hash_)
            for start in (0, 40):
                new.intents.put(replace(intent, logs=intent.logs[start : start + 40]))
    assert without_arrival(answers(other)) == without_arrival(answers(service))
