"""`muniment runs verify`: a recorded run is made again, by nodes or by what its relayer claims."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import Result
from test_run import folder_of, options, tried
from test_run_chains import OWNER, World, service, world

from builders import event
from chain import CHAIN_TESTS
from muniment.client import Registry
from muniment.protocol.forms import decode_record
from muniment.protocol.intents.types import AnyNewIntent, NewIntent, NewOperationsIntent
from muniment.protocol.runs.types import NewRun
from service import Service
from using import operator_key
from warm_sandbox import warm_sandbox

__all__ = ["service", "warm_sandbox", "world"]
pytestmark = [*CHAIN_TESTS, pytest.mark.usefixtures("warm_sandbox")]


@pytest.fixture(scope="module")
def key(service: Service) -> str:
    return operator_key(service)


def run_for_an_event(world: World, folder: Path, file: Path) -> dict[str, Any]:
    """A run for an event, as `muniment run` shows it with a chains file."""
    cid = world.person.json("deploy", folder_of(folder, "event"))["CID"]
    config = json.dumps(event(contract=world.token, topics=[]))
    values = options({"feeToken": world.token, "fee": 5})
    sig = world.person.json("triggers", "create", "--function", cid, "--config", config, *values)["sig"]
    world.chain.ask("evm_increaseTime", 2)  # a block of the second of the registration counts as before it
    world.chain.mint(world.token, OWNER, 7)
    (transaction,) = world.chain.ask("eth_getBlockByNumber", "latest", False)["transactions"]
    status, shown = tried(world.person, "--trigger", sig, "--event", f"8453:{transaction}:0", "--chains", file)
    assert (status, shown["result"]) == (0, "intents")
    return shown


@pytest.fixture
def ran(world: World, tmp_path: Path) -> dict[str, Any]:
    return run_for_an_event(world, tmp_path, world.file)


def record(service: Service, key: str, shown: dict[str, Any], **members: Any) -> str:
    """The hash of a run that was recorded with its intents."""
    new = decode_record({**shown, **members}, NewRun)
    assert isinstance(new, NewRun)
    with Registry(service.url, operator_key=key) as registry:
        run = registry.runs.record(msgspec.structs.replace(new, hash=None))
        if new.outputs:
            for intent in shown["intents"]:
                made = decode_record({**intent, "executionHash": run.hash}, AnyNewIntent)
                assert isinstance(made, NewIntent | NewOperationsIntent)
                registry.intents.put(made)
        return run.hash


def verified(world: World, hash_: str, *more: object) -> Result:
    return world.person.run("runs", "verify", hash_, *more)


def test_a_true_run_is_the_same_by_nodes(world: World, service: Service, key: str, ran: dict[str, Any]) -> None:
    hash_ = record(service, key, ran)
    done = verified(world, hash_, "--chains", world.file, "--json")
    shown = json.loads(done.stdout)
    assert (done.exit_code, shown["hash"], shown["outcome"], shown["reasons"]) == (0, hash_, "same", [])
    assert any(each.startswith("who recorded the run and when") for each in shown["notCompared"])
    done = verified(world, hash_, "--columns")  # its settlement contract is one of that file alone
    assert done.exit_code == 1
    assert "cannot be checked: the function was told" in done.stdout
    assert "--chains" in done.stderr


def test_a_true_run_is_consistent_without_nodes(world: World, service: Service, key: str, tmp_path: Path) -> None:
    file = tmp_path / "chains.toml"
    file.write_text(f'[[chains]]\nid = 8453\nrpc_urls = ["{world.chain.url}"]\n')
    hash_ = record(service, key, run_for_an_event(world, tmp_path, file))
    assert verified(world, hash_, "--chains", file).exit_code == 0
    done = verified(world, hash_, "--columns")
    assert done.exit_code == 1
    unnamed = "0x" + "00" * 20
    assert f"consistent with the answers that {unnamed} claims; the answers were not checked" in done.stdout
    assert "--chains" in done.stderr


def test_a_false_run_is_different(world: World, service: Service, key: str, ran: dict[str, Any]) -> None:
    hash_ = record(service, key, ran, result="nothing", outputs=[])
    done = verified(world, hash_, "--chains", world.file, "--columns")
    assert done.exit_code == 5
    assert "different: the function gives another result here: 1 intent; the record has nothing" in done.stdout
