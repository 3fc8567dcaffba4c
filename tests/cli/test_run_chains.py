"""`muniment run` on a local chain: questions, blocks of the past, and events."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from test_run import USER, folder_of, options, tried

from builders import Wallet, event
from chain import CHAIN_TESTS, LocalChain
from muniment.protocol.evm.address import Address
from service import Service
from using import Person
from warm_sandbox import warm_sandbox

__all__ = ["warm_sandbox"]  # the fixture
pytestmark = [*CHAIN_TESTS, pytest.mark.usefixtures("warm_sandbox")]

OWNER = Address.parse(USER)


class World:
    """A chain with a token, and a person whose chains file names its node."""

    def __init__(self, chain: LocalChain, person: Person, folder: Path) -> None:
        self.chain, self.person = chain, person
        self.token = chain.deploy("MockERC20", "Token", "TKN", 18)
        self.file = folder / "chains.toml"
        settler = chain.deploy("MiniSettlerLegacy")
        self.file.write_text(f'[[chains]]\nid = 8453\nrpc_urls = ["{chain.url}"]\nsettlers = ["{settler}"]\n')

    def tried(self, *arguments: object) -> tuple[int, dict[str, Any]]:
        return tried(self.person, *arguments, "--chains", self.file)

    def values(self, **more: object) -> list[str]:
        return options({
            "chainId": 8453, "token": self.token, "amount": 1000, "recipient": "0x" + "bb" * 20, "fee": 5, **more,
        })  # fmt: skip


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with Service(tmp_path_factory.mktemp("served") / "data") as service:
        yield service


@pytest.fixture(scope="module")
def world(service: Service, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("world")
    with LocalChain() as chain:
        yield World(chain, Person(service, folder / "home", Wallet(8_100)), folder)


def test_a_balance_is_read_at_the_block_that_is_named(world: World, tmp_path: Path) -> None:
    folder = folder_of(tmp_path, "balance")
    before = int(world.chain.ask("eth_blockNumber"), 16)
    world.chain.mint(world.token, OWNER, 500)
    at = int(world.chain.ask("eth_blockNumber"), 16)
    wanted = ["--bundle", folder, "--user", USER, *world.values(above=499)]
    status, shown = world.tried(*wanted, "--at", f"8453:{before}")
    assert (status, shown["logs"], shown["blocks"][0]["number"]) == (10, ["[Info] balance 0"], before)
    status, shown = world.tried(*wanted, "--at", f"8453:{at}")
    assert (status, shown["logs"]) == (0, ["[Info] balance 500"])
    (intent,) = shown["intents"]
    assert (intent["user"].lower(), intent["op"]) == (USER, 1)  # the settlement contract is of the first generation
    (asked,) = shown["inputs"]
    assert (asked["query"], asked["answer"]["success"]) == ("evmCall", True)
    done = world.person.run("run", *wanted, "--at", f"8453:{at + 1_000}", "--chains", world.file)
    assert (done.exit_code, done.stdout) == (12, "")
    assert f"no block {at + 1_000} yet" in done.stderr


def test_an_event_is_found_by_its_transaction(world: World, tmp_path: Path) -> None:
    world.chain.mint(world.token, OWNER, 7)
    block = world.chain.ask("eth_getBlockByNumber", "latest", False)
    (transaction,) = block["transactions"]
    folder = folder_of(tmp_path, "event")
    wanted = ["--bundle", folder, "--user", USER, *options({"feeToken": world.token, "fee": 5})]
    status, shown = world.tried(*wanted, "--event", f"8453:{transaction}:0")
    assert (status, shown["triggerType"], shown["timestamp"]) == (0, 1, 1_000 * int(block["timestamp"], 16))
    assert f"in block {block['hash']} with 3 topics" in shown["logs"][0]
    done = world.person.run("run", *wanted, "--event", f"8453:{transaction}:1", "--chains", world.file)
    assert (done.exit_code, done.stdout) == (2, "")
    assert "the transaction has 1 logs" in done.stderr


def test_an_event_that_the_trigger_does_not_wait_for_is_refused(world: World, tmp_path: Path) -> None:
    world.chain.mint(world.token, OWNER, 7)
    (transaction,) = world.chain.ask("eth_getBlockByNumber", "latest", False)["transactions"]
    folder = folder_of(tmp_path, "event")
    cid = world.person.json("deploy", folder)["CID"]

    def created(contract: str) -> str:
        config = json.dumps(event(contract=contract, topics=[]))
        values = options({"feeToken": world.token, "fee": 5})
        return world.person.json("triggers", "create", "--function", cid, "--config", config, *values)["sig"]

    one, other = created(world.token), created("0x" + "99" * 20)
    status, shown = world.tried("--trigger", one, "--event", f"8453:{transaction}:0")
    assert (status, shown["triggerSig"]) == (0, one)
    for sig, more, words in (
        (other, ["--event", f"8453:{transaction}:0"], "waits for events of"), (one, [], "name one with --event"),
    ):  # fmt: skip
        done = world.person.run("run", "--trigger", sig, *more, "--chains", world.file)
        assert (done.exit_code, done.stdout) == (2, ""), done.output
        assert words in done.stderr


def test_a_run_that_no_node_answers_is_incomplete(world: World, tmp_path: Path) -> None:
    file = tmp_path / "dead.toml"
    file.write_text('[[chains]]\nid = 8453\nrpc_urls = ["http://127.0.0.1:9"]\n')
    wanted = ["--bundle", folder_of(tmp_path, "balance"), "--user", USER, *world.values(above=499)]
    status, shown = tried(world.person, *wanted, "--chains", file)
    assert (status, shown["result"], shown["reason"]["code"]) == (12, "incomplete", "no-answer")
