"""A relayer on a real chain whose newest blocks are replaced again and again, with events in them."""

from __future__ import annotations

import os
import random
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from chain import CHAIN_TESTS, SECONDS_MAX as MINED_SECONDS_MAX, LocalChain
from relayer_attacks import event_of
from relayer_site import SECONDS_MAX, Site, new_site

pytestmark = [*CHAIN_TESTS, pytest.mark.long]

ROUNDS = int(os.environ.get("REORGANISATIONS", "3"))
DEPTH_MAX = 5
TOPIC = "0x" + "6b" * 32
# It logs TOPIC with the data of each call.
_CODE = f"365f5f377f{TOPIC[2:]}365fa100"
_CREATION = f"6029600a5f3960295ff3{_CODE}".replace("6029", f"60{len(_CODE) // 2:02x}")


@dataclass
class World:
    """A relayer at a chain, and a trigger of the events of a contract, which are numbered."""

    chain: LocalChain
    site: Site
    dice: random.Random
    contract: str = ""
    sig: str = ""
    # The numbers of all events that any block had.
    made: set[int] = field(default_factory=set[int])

    def mine(self, events: list[int]) -> str:
        """A block at the time of the clock, with these events; its hash. Each has a sender of its own.

        So the same event in another block is the same transaction.
        """
        newest_s = int(self.chain.ask("eth_getBlockByNumber", "latest", False)["timestamp"], 16)
        while (now_s := int(time.time())) <= newest_s:
            time.sleep(0.05)
        self.chain.ask("evm_setAutomine", False)
        for number in events:
            sender = f"0x{0xE0000 + number:040x}"
            self.chain.ask("anvil_impersonateAccount", sender)
            self.chain.ask("anvil_setBalance", sender, hex(10**18))
            self.chain.ask("eth_sendTransaction", {
                "from": sender, "to": self.contract, "data": f"0x{number:064x}", "gas": hex(200_000),
                "gasPrice": hex(10**11),
            })  # fmt: skip
        self.made |= {*events}
        self.chain.ask("anvil_setNextBlockBaseFeePerGas", hex(10**9))  # a reverted one is not restored
        self.chain.ask("evm_setNextBlockTimestamp", now_s)
        self.chain.ask("evm_mine")
        block = self.chain.ask("eth_getBlockByNumber", "latest", False)
        assert len(block["transactions"]) == len(events)
        return block["hash"]

    def submit(self, run: dict[str, Any]) -> None:
        """Say that a solver has sent the intent of a run."""
        key = (self.site.directory / "relayer.key").read_text()
        for status in ("enqueued", "submitted"):
            change = {"status": status, **({"transactionHash": "0x" + "ab" * 32} if status == "submitted" else {})}
            url = f"{self.site.service.url}/intents/{run['outputs'][0]['hash']}/status"
            # It may have been discarded for that of the same event in another block.
            self.site.http.post(url, json=change, headers={"x-operator-key": key})

    def all_runs(self) -> dict[int, list[dict[str, Any]]]:
        """The verdicts on each event, and the notes that it ran in another block."""
        found = defaultdict[int, list[dict[str, Any]]](list)
        for run in self.site.all("/executions", triggerSig=self.sig):
            if run["result"] == "intents" or run.get("reason", {}).get("code") == "other-block":
                found[int(event_of(run).data, 16)].append(run)
        return found

    def canonical(self) -> dict[int, str]:
        """The block of each event that is on the chain now."""
        logs = self.chain.ask("eth_getLogs", {"fromBlock": "0x0", "toBlock": "latest", "address": self.contract})
        return {int(log["data"], 16): log["blockHash"] for log in logs}


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with LocalChain(31_337) as chain, new_site(tmp_path, {31_337: [chain.url]}) as site:
        made = World(chain, site, random.Random(11))
        sent = chain.ask("eth_sendTransaction", {"from": chain.ask("eth_accounts")[0], "data": f"0x{_CREATION}"})
        until = time.monotonic() + MINED_SECONDS_MAX
        while (receipt := chain.ask("eth_getTransactionReceipt", sent)) is None:
            assert time.monotonic() < until, "the transaction was not mined"
            time.sleep(0.01)
        made.contract = receipt["contractAddress"]
        made.sig = site.sign_event(made.contract, [[TOPIC]])
        with site.relaying():
            time.sleep(1.1)  # an event in the second of the registration is too early
            yield made


def replace_blocks(world: World, first: int) -> None:
    """Mine up to five blocks with an event each, which run or not, and replace them by one more block."""
    depth = world.dice.randint(1, DEPTH_MAX)
    snapshot = world.chain.ask("evm_snapshot")
    events = [*range(first, first + depth)]
    for number in events:
        world.mine([number])
    if world.dice.random() < 0.8:
        wanted = set(events[: world.dice.randint(1, depth)])
        world.site.wait_until(lambda: wanted <= {*world.all_runs()}, "events have not run")
        for number in wanted:
            if world.dice.random() < 0.5:
                world.submit(world.all_runs()[number][0])
    world.chain.ask("evm_revert", snapshot)
    back = [number for number in events if world.dice.random() < 0.7]
    places = sorted(world.dice.randint(0, depth) for _ in back)
    for place in range(depth + 1):
        world.mine([number for number, at in zip(back, places, strict=True) if at == place])


def test_no_event_acts_twice_however_often_its_block_is_replaced(world: World) -> None:
    for number in range(ROUNDS):
        replace_blocks(world, 10 * number)
    for _ in range(3):
        world.mine([])
    chain = world.canonical()
    world.site.wait_until(lambda: is_settled(world, chain), "runs do not follow the chain", SECONDS_MAX)
    check(world, chain)


def is_settled(world: World, chain: dict[int, str]) -> bool:
    """Whether each event of the chain has run or is noted, and each run of a block that is gone is orphaned."""
    runs = world.all_runs()
    return all(_blocks(runs[number]) >= {block} for number, block in chain.items()) and all(
        (run["status"] == "invalid") is (event_of(run).block_hash != chain.get(number))
        for number, each in runs.items()
        for run in each
        if run["result"] == "intents"
    )


def _blocks(runs: list[dict[str, Any]]) -> set[str]:
    return {event_of(each).block_hash for each in runs}


def check(world: World, chain: dict[int, str]) -> None:
    """Of one event, at most one intent can be executed, and one block has at most one verdict."""
    acting = defaultdict[int, list[str]](list)
    for number, runs in world.all_runs().items():
        verdicts = [each for each in runs if each["result"] == "intents"]
        assert len(_blocks(verdicts)) == len(verdicts), number
        for output in [output for each in verdicts for output in each["outputs"] if output["recorded"]]:
            status = world.site.get(f"/intents/{output['hash']}")["status"]
            if status != "discarded":
                acting[number].append(status)
    assert {number: each for number, each in acting.items() if len(each) > 1} == {}
    print(f"\n{len(world.made)} events, {len(chain)} of them on the chain in the end")
