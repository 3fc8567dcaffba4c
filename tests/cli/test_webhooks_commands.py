"""`muniment webhooks`, with a receiver on loopback."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from muniment.cli.main import main
from muniment.service.auth.secrets import RingFile
from muniment.service.resources.feed.events import Position
from receiving import Receiver

ELSEWHERE = "https://hooks.example.org/"
UNKNOWN = "mnh_" + "0f" * 16


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """The data directory of a registry."""
    path = tmp_path / "data"
    RingFile(path)
    assert CliRunner().invoke(main, ["migrate", "--data-dir", str(path)]).exit_code == 0
    return path


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver().listening() as listening:
        yield listening


def run(data: Path, *arguments: str) -> Result:
    environ = {"MUNIMENT_ALLOW_PRIVATE_NETWORKS": "true"}
    return CliRunner().invoke(main, ["webhooks", *arguments, "--data-dir", str(data)], env=environ)


def done(data: Path, *arguments: str) -> str:
    result = run(data, *arguments)
    assert result.exit_code == 0, result.output
    return result.output.rstrip("\n")


def test_an_operator_adds_tests_and_removes_a_webhook(data: Path, receiver: Receiver) -> None:
    hook_id, secret = done(data, "add", receiver.url, "--type", "trigger.created").split("\n")
    assert done(data, "test", hook_id).startswith(f"{hook_id} is active: delivered after ")
    receiver.received[0].verify(secret)
    assert done(data, "list") == f"{hook_id}  active  cli  {receiver.url}"
    shown = json.loads(done(data, "show", hook_id))
    assert shown["webhook"]["types"] == ["muniment.trigger.created"]
    assert [each["outcome"] for each in shown["attempts"]] == ["delivered"]
    assert done(data, "remove", hook_id) == f"{hook_id} is removed"
    assert done(data, "list") == "no webhooks; `muniment webhooks add` adds one"


def test_a_test_that_fails_has_status_1(data: Path, receiver: Receiver) -> None:
    receiver.reply = lambda _: (500, {}, b"")
    hook_id, _ = done(data, "add", receiver.url).split("\n")
    result = run(data, "test", hook_id)
    assert result.exit_code == 1
    assert f"{hook_id} is pending: http-500" in result.output


def test_a_rotation_prints_a_new_secret_and_both_sign(data: Path, receiver: Receiver) -> None:
    hook_id, before = done(data, "add", receiver.url).split("\n")
    after = json.loads(done(data, "rotate", hook_id, "--json"))["secret"]
    assert len(b64decode(after.removeprefix("whsec_"))) == 32
    done(data, "test", hook_id)
    for secret in (before, after):
        receiver.received[0].verify(secret)


def test_a_webhook_is_resumed_and_replayed(data: Path, receiver: Receiver) -> None:
    hook_id, _ = done(data, "add", receiver.url).split("\n")
    refused = run(data, "resume", hook_id)
    assert refused.exit_code == 1
    assert "/test comes first" in refused.output
    done(data, "test", hook_id)
    assert done(data, "resume", hook_id) == f"{hook_id} is active"
    cursor = json.loads(done(data, "show", hook_id))["webhook"]["cursor"]
    assert done(data, "replay", hook_id, cursor) == f"{hook_id} continues after {cursor}"
    beyond = Position.at(Position.parse(cursor).epoch, 10**6)
    assert run(data, "replay", hook_id, beyond).exit_code == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["add", "ftp://hooks.example.org/"], "the URL must be https://host/path"),
        (["add", ELSEWHERE, "--type", "trigger.renamed"], "a type is one of"),
        (["add", ELSEWHERE, "--owner", "0x1"], "an address is 0x and 40 hex digits"),
        (["add", ELSEWHERE, "--operator", "a b"], "an operator's name"),
        (["show", "mnh_1"], "the id of a webhook is mnh_ and 32 hex digits"),
        (["remove", UNKNOWN], "no webhook with this id"),
        (["test", UNKNOWN], "no webhook with this id"),
        (["replay", UNKNOWN, "x"], "this service did not issue the cursor"),
    ],
)
def test_a_mistake_is_one_line_and_stores_nothing(data: Path, arguments: list[str], message: str) -> None:
    result = run(data, *arguments)
    assert result.exit_code == 1
    assert result.output.startswith("Error: ")
    assert result.output.count("\n") == 1
    assert message in result.output
    assert done(data, "list", "--json") == "[]"
