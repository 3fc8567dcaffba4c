"""`muniment run`: trials of functions that need no node, on a real sandbox and against a real registry."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from builders import Wallet
from guest_functions import INPUTS, Generation, bundle
from service import Service
from using import SAMPLE_INPUT, Person, draft
from warm_sandbox import warm_sandbox

__all__ = ["warm_sandbox"]  # the fixture
pytestmark = pytest.mark.usefixtures("warm_sandbox")

USER = "0x" + "ab" * 20
TRANSFER = {"chainId": 8453, "token": "0x" + "aa" * 20, "amount": 1000, "recipient": "0x" + "bb" * 20, "fee": 5}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with Service(tmp_path_factory.mktemp("served") / "data") as service:
        yield service


# Each test has a wallet of its own: a wallet logs in eight times in five minutes at most.
NUMBERS = count(8_000)


@pytest.fixture
def person(served: Service, tmp_path: Path) -> Person:
    return Person(served, tmp_path / "home", Wallet(next(NUMBERS)))


def folder_of(tmp_path: Path, name: str, generation: Generation = "B") -> Path:
    """A folder with the files of a sample function."""
    folder = tmp_path / f"{name}-{generation}"
    folder.mkdir()
    made = bundle(name, generation)
    (folder / "manifest.json").write_bytes(made.manifest)
    (folder / "function.wasm").write_bytes(made.wasm)
    return folder


def options(values: dict[str, Any]) -> list[str]:
    return [part for name, value in values.items() for part in ("--input", f"{name}={value}")]


def tried(person: Person, *arguments: object) -> tuple[int, dict[str, Any]]:
    """The status of a trial and what it printed."""
    done = person.run("run", *arguments, "--json")
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, json.loads(done.stdout or "{}")


@pytest.mark.parametrize("generation", ["B", "C"])
def test_a_trial_of_files_shows_the_intent_and_the_log(person: Person, tmp_path: Path, generation: Generation) -> None:
    folder = folder_of(tmp_path, "transfer", generation)
    status, shown = tried(person, "--bundle", folder, "--user", USER, *options(TRANSFER))
    assert (status, shown["result"], shown["logs"]) == (
        0, "intents", [f"[Info] 1000 of {TRANSFER['token']} for {TRANSFER['recipient']}"],
    )  # fmt: skip
    assert shown["triggerSig"] == "0x" + "00" * 65
    (intent,) = shown["intents"]
    # The catalogue's newest settlement contract of the chain is of the second generation.
    assert (intent["feePayer"].lower(), intent["operations"][0]["opType"]) == (USER, 1)
    assert intent["deadline"] == str(shown["timestamp"] // 1000 + 300)
    assert len(intent["hash"]) == 66


def test_a_trial_by_cid_reads_the_function_from_the_registry(person: Person, tmp_path: Path) -> None:
    cid = person.deployed(tmp_path / "build")
    status, shown = tried(person, cid, "--user", USER, *options(SAMPLE_INPUT))
    assert (status, shown["functionCid"], len(shown["intents"])) == (0, cid, 1)


def test_a_trial_of_a_trigger_has_its_inputs_its_wallet_and_its_newest_tick(person: Person, tmp_path: Path) -> None:
    cid = person.deployed(tmp_path / "build")
    sig = person.json("triggers", "create", *draft(cid))["sig"]
    first, again = (tried(person, "--trigger", sig)[1] for _ in range(2))
    assert (first["triggerSig"], first["timestamp"] % 21_600_000) == (sig, 0)  # every six hours
    (intent,) = first["intents"]
    assert (intent["feePayer"], intent["triggerSig"]) == (person.wallet.address, sig)
    if first["timestamp"] == again["timestamp"]:  # no tick in between
        assert first == again
    # Other files under the same consent.
    other = folder_of(tmp_path, "nothing")
    done = person.run("run", "--trigger", sig, "--bundle", other)
    assert done.exit_code == 10
    assert "not the function of the trigger" in done.stderr
    done = person.run("run", "--trigger", sig, "--bundle", folder_of(tmp_path, "price"))
    refused(done, "needs inputs that the trigger does not have: below")


@pytest.mark.parametrize(
    ("name", "status", "reason"),
    [("nothing", 10, None), ("late_abort", 11, "abort"), ("unknown_import", 11, "refused-import")],
)
def test_the_exit_status_says_what_came_of_it(
    person: Person, tmp_path: Path, name: str, status: int, reason: str | None
) -> None:
    inputs = options(TRANSFER) if name == "late_abort" else []
    got, shown = tried(person, "--bundle", folder_of(tmp_path, name), "--user", USER, *inputs)
    assert (got, shown.get("reason", {}).get("code"), shown["intents"]) == (status, reason, [])


def test_words_have_the_result_the_intents_and_the_log(person: Person, tmp_path: Path) -> None:
    folder = folder_of(tmp_path, "late_abort")
    done = person.run("run", "--bundle", folder, *options(TRANSFER), "--columns", MUNIMENT_PRIVATE_KEY_FILE=None)
    assert done.exit_code == 11
    assert "stopped, abort: ended in the last line" in done.stdout
    assert "for nobody" in done.stderr


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("transfer", f"transfer 1000 of {'0x' + 'aa' * 20} to {'0x' + 'bb' * 20} on chain 8453"),
        ("call", f"call {'0x' + 'cc' * 20} with 2 bytes (0x1234) and 3 wei on chain 8453"),
        (
            "swap",
            f"swap 7 of {'0x' + 'aa' * 20} on chain 8453 for at least 6 of {'0x' + 'cc' * 20} for {USER} on chain 8453",
        ),
    ],
)  # fmt: skip
def test_words_say_what_an_intent_would_do(person: Person, tmp_path: Path, name: str, words: str) -> None:
    values: dict[str, Any] = {
        **TRANSFER, "target": "0x" + "cc" * 20, "data": "0x1234", "value": 3, "feeToken": TRANSFER["token"],
        "tokenIn": TRANSFER["token"], "amountIn": 7, "tokenOut": "0x" + "cc" * 20, "minAmountOut": 6,
    }  # fmt: skip
    given = options({each: values[each] for each in INPUTS[name]})
    done = person.run("run", "--bundle", folder_of(tmp_path, name), "--user", USER, *given, "--columns")
    assert done.exit_code == 0
    assert words in done.stdout.lower()
    assert "for a fee of at most 5 of 0x" in done.stdout


def refused(done: Result, *words: str) -> None:
    assert done.exit_code == 2, done.output
    assert all(word in done.stderr for word in words), done.stderr
    assert done.stdout == ""


def test_a_trial_that_cannot_be_made_is_refused_with_what_to_change(person: Person, tmp_path: Path) -> None:
    folder, user = folder_of(tmp_path, "transfer"), ["--user", USER]
    refused(person.run("run"), "a CID, --bundle DIRECTORY or --trigger SIG")
    refused(person.run("run", "Qm", "--bundle", folder), "not both")
    refused(person.run("run", "--trigger", "0x", "--user", USER), "leave out --input and --user")
    refused(person.run("run", "--bundle", folder, *user), "needs more inputs: chainId (uint32), token (address)")
    refused(person.run("run", "--bundle", folder, *user, *options({**TRANSFER, "more": 1})), "no input more")
    values = {**TRANSFER, "amount": "much"}
    refused(person.run("run", "--bundle", folder, *user, *options(values)), "amount")
    refused(person.run("run", "--bundle", folder, *user, *options(TRANSFER), "--at", "8453"), "CHAIN:BLOCK")
    refused(person.run("run", "--bundle", folder, *user, *options(TRANSFER), "--at", "8453:1"), "--chains")
    event = ["--event", f"8453:0x{'11' * 32}"]
    refused(person.run("run", "--bundle", folder, *user, *options(TRANSFER), *event), "CHAIN:TRANSACTION:POSITION")


def test_a_function_that_the_registry_does_not_have_is_named(person: Person) -> None:
    done = person.run("run", "QmV2xSyG76zpH98n3aZfr4FVMwC64nbKnQ13vEjyHidmMZ", "--user", USER)
    assert done.exit_code == 1
    assert "muniment functions list" in done.stderr
