"""Two relayers whose nodes differ by three blocks: they read the same block, and so record one run and one intent."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest

from answers import ok
from builders import TriggerDraft, Wallet, cron, deploy, event, register
from chain import CHAIN_TESTS, encoded, selector
from chain_relayer import ENGINE, SETTINGS, ChainRelayer
from conftest import Clock
from guest_functions import INPUTS, bundle
from muniment.guest.sandbox import Sandbox
from muniment.protocol.evm.address import Address
from muniment.protocol.evm.hashing import keccak256
from muniment.protocol.runs.types import RunToken
from muniment.relayer.lives.following import Following
from muniment.relayer.runner.attempt import Settling
from muniment.relayer.runner.pinning import Pins
from muniment.relayer.runner.running import FunctionRunning
from muniment.relayer.runner.settlers import Generations
from muniment.service.app import Application
from operator_client import SETTLER, operator_key
from pinned_world import CHAIN_ID, Nodal, chain, nodal
from without_server import InProcess

__all__ = ["chain", "nodal"]
pytestmark = [*CHAIN_TESTS, pytest.mark.one_engine]

WALLET = Wallet(1)
OWNER, OTHER = Address.parse(WALLET.address), Address.parse("0x" + "0b" * 20)
TRANSFER = "0x" + keccak256(b"Transfer(address,address,uint256)").hex()


@dataclass
class World:
    """A registry, a token, and a function that sends a transfer when its owner has more than 100 of it."""

    nodal: Nodal
    client: httpx2.AsyncClient
    token: Address
    cid: str
    # The second asks a node that is three blocks behind that of the first.
    relayers: Sequence[ChainRelayer]

    async def sign(self, config: dict[str, Any]) -> str:
        given = {
            "chainId": CHAIN_ID, "token": self.token, "amount": "1", "recipient": OTHER, "fee": "0", "above": "100",
        }  # fmt: skip
        draft = TriggerDraft(self.cid, WALLET, config=config, inputs={**INPUTS["balance"]}, input=given)
        return (await register(self.client, draft))["sig"]

    def block(self, second: int, *, gets: int = 0, gives: int = 0) -> None:
        """Mine a block at this second, in which the owner gets or gives some of the token."""
        self.nodal.chain.ask("evm_setNextBlockTimestamp", second)
        if gets:
            self.nodal.chain.mint(self.token, OWNER, gets)
        else:
            data = selector("transfer(address,uint256)") + encoded((OTHER, gives))
            self.nodal.chain.send(data, self.token, OWNER)

    async def check(self, sig: str, balance: int) -> None:
        """Both relayers recorded one run, which read `balance`, and its one intent."""
        (run,) = ok(await self.client.get("/executions", params={"triggerSig": sig})).json()
        assert (run["result"], run["status"], run["validations"], run["conflicts"]) == ("intents", "valid", 2, [])
        assert run["logs"] == [f"[Info] balance {balance}"]
        assert len({each["evidence"] for each in run["records"]}) == 1
        (output,) = run["outputs"]
        (intent,) = ok(await self.client.get("/intents", params={"configSig": sig, "generation": "all"})).json()
        assert (intent["hash"], intent["executionHash"]) == (output["hash"], run["hash"])
        assert [each["data"] for each in intent["logs"]].count(run["logs"][0]) == 1


@pytest.fixture
async def world(
    nodal: Nodal, client: httpx2.AsyncClient, app: Application, clock: Clock, tmp_path: Path
) -> AsyncIterator[World]:
    clock.now_ms = 1_000 * nodal.newest_s
    token = nodal.chain.deploy("MockERC20", "Test", "T", 6)
    cid = await deploy(client, bundle("balance", "B"))
    settling = Settling(
        settlers=[RunToken(address=Address.parse(SETTLER), chain_id=CHAIN_ID)], generations=Generations({})
    )
    transport = InProcess(app)
    async with httpx2.AsyncClient(transport=transport, base_url="http://test") as plain, Sandbox.open() as sandbox:

        def running(following: Following, pins: Pins) -> FunctionRunning:
            return FunctionRunning(
                settings=SETTINGS, following=following, sandbox=sandbox, pins=pins, settling=settling, engine=ENGINE
            )

        relayers = [
            ChainRelayer(
                nodal=nodal, plain=plain, clock=clock, key=await operator_key(app.context, name), running=running,
                path=tmp_path / f"{name}.db", urls=(url,), pin_confirmations=1,
            )
            for name, url in (("first", nodal.chain.url), ("second", nodal.behind(3)))
        ]  # fmt: skip
        yield World(nodal, client, token, cid, relayers)


async def test_a_tick_is_run_at_one_block(world: World) -> None:
    first, second = world.relayers
    tick = world.nodal.newest_s // 60 * 60 + 60
    sig = await world.sign(cron(schedule="* * * * *", delta="10m"))
    world.block(tick, gets=500)
    for later in (2, 4):  # after the tick the owner has nothing
        world.block(tick + later, gives=250)
    assert await first.step()
    assert not await second.step()  # its node has no block after the tick
    for later in (10, 12):  # tried again five seconds later; at the head of its node the owner has 250 now
        world.block(tick + later, gives=0)
    for relayer in (second, first):
        assert await relayer.step()
    await world.check(sig, 500)


async def test_an_event_is_run_at_its_block(world: World) -> None:
    first, second = world.relayers
    topics = [[TRANSFER], [], ["0x" + OWNER[2:].lower().rjust(64, "0")]]
    sig = await world.sign(event(chainId=CHAIN_ID, contract=world.token, topics=topics, delta="1h"))
    start = world.nodal.newest_s
    world.block(start + 2, gives=0)
    for relayer in world.relayers:
        await relayer.step(confirmations=1)
    world.block(start + 4, gets=500)
    for later in (6, 8):
        world.block(start + later, gives=250)
    for relayer in (first, second):
        await relayer.step(confirmations=1)
    (run,) = ok(await world.client.get("/executions", params={"triggerSig": sig})).json()
    assert run["validations"] == 1
    for later in (10, 12):
        world.block(start + later, gives=0)
    for relayer in (second, first):
        assert await relayer.step(confirmations=1)
    await world.check(sig, 500)
