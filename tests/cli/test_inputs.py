"""`--input NAME=VALUE` is read by the type that the manifest has for the name."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from builders import Wallet
from each_row import each_row
from guest_functions import bundle
from service import Service
from using import Person
from warm_sandbox import warm_sandbox

__all__ = ["warm_sandbox"]  # the fixture
TOKEN = {"address": "0xaAaAaAaaAaAaAaaAaAAAAAAAAaaaAaAaAaaAaaAa", "chainId": 1}
TYPES = {
    "label": "string", "mark": "bytes", "id": "bytes4", "to": "address", "count": "uint8", "sum": "int", "flag": "bool",
    "token": "Token", "pay": "TokenAmount",
}  # fmt: skip
VALUES: dict[str, Any] = {
    "label": "x", "mark": "0x", "id": "0x12345678", "to": TOKEN["address"], "count": 7, "sum": -1, "flag": True,
    "token": TOKEN, "pay": {"token": TOKEN, "amount": "1.5"},
}  # fmt: skip
NUMBERS = count(12_000)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with Service(tmp_path_factory.mktemp("served") / "data") as service:
        yield service


@pytest.fixture(scope="module")
def person(served: Service, tmp_path_factory: pytest.TempPathFactory) -> Person:
    return Person(served, tmp_path_factory.mktemp("home"), Wallet(next(NUMBERS)))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A function that reads no input, with an input of every kind."""
    made, path = bundle("nothing", "B"), tmp_path_factory.mktemp("texts")
    (path / "manifest.json").write_text(json.dumps({**json.loads(made.manifest), "inputs": TYPES}))
    (path / "function.wasm").write_bytes(made.wasm)
    return path


@pytest.fixture(scope="module")
def cid(person: Person, folder: Path) -> str:
    return person.json("deploy", folder)["CID"]


def options(**texts: str) -> list[str]:
    written = {name: value if isinstance(value, str) else json.dumps(value) for name, value in VALUES.items()}
    return [part for name, text in {**written, **texts}.items() for part in ("--input", f"{name}={text}")]


@each_row(("name", "text", "value"), [
    *(("label", text, text) for text in (
        "123", '"quoted"', "true", "null", "[1]", '{"a": 1}', "1.50", "a=b", "", " padded ", "0x00", "1e3", "ñ",
        "9007199254740993", "\N{ZERO WIDTH NO-BREAK SPACE}x",
    )),
    ("mark", "0x0011", "0x0011"),
    ("count", "0x07", "0x07"),
    ("count", "0", 0),
    ("sum", "9007199254740991", 9007199254740991),
    ("sum", "-9007199254740992", "-9007199254740992"),
    ("sum", "-90071992547409931", "-90071992547409931"),
    ("flag", "false", False),
    ("token", json.dumps(TOKEN), TOKEN),
])  # fmt: skip
def test_a_value_is_signed_as_it_was_typed(person: Person, cid: str, name: str, text: str, value: object) -> None:
    signed = person.json("triggers", "sign", "--function", cid, "--schedule", "0 0 * * *", *options(**{name: text}))
    assert signed["typedData"]["values"]["input"] == {**VALUES, name: value}


def test_a_registered_trigger_has_the_text(person: Person, cid: str) -> None:
    created = person.json("triggers", "create", "--function", cid, "--once", *options(label='"1"'))
    assert created["input"]["label"] == '"1"'
    assert 'label is "\\"1\\""' in " ".join(
        person.json("triggers", "preview", "--function", cid, "--once", *options(label='"1"'))["summary"]
    )


WRONG = [
    ("flag", "True", "flag"), ("flag", "1", "flag"), ("count", "256", "count"), ("count", "07", "count"),
    ("count", "1.0", "count"), ("count", "", "count"), ("count", '"7"', "count"), ("id", "12345678", "id"),
    ("token", str(TOKEN["address"]), "--input token: a Token is given as a JSON object"),
    ("token", "{}", "token"), ("token", "[]", "token"), ("pay", '"1.5"', "pay"),
    ("pay", "{", "--input pay: a TokenAmount is given as a JSON object"),
    ("pay", json.dumps({"token": TOKEN, "amount": 1.5}), "pay/amount"),
]  # fmt: skip


@each_row(("name", "text", "said"), WRONG)
def test_a_value_of_another_type_is_refused_by_name(person: Person, cid: str, name: str, text: str, said: str) -> None:
    refused = person.run("triggers", "create", "--function", cid, "--once", *options(**{name: text}))
    assert (refused.exit_code, refused.stdout, said in refused.stderr) == (2, "", True), refused.output


@pytest.mark.usefixtures("warm_sandbox")
def test_a_trial_reads_values_as_a_trigger_does(person: Person, cid: str, folder: Path) -> None:
    for place in ([cid], ["--bundle", folder]):
        for text in ("123", "true", '"quoted"'):
            assert person.run("run", *place, *options(label=text)).exit_code == 10
        for name, text, _ in WRONG:
            refused = person.run("run", *place, *options(**{name: text}))
            assert (refused.exit_code, name in refused.stderr) == (2, True), (name, text, refused.output)
