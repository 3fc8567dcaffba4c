"""Triggers of events with a real chain: planned, run, cancelled, orphaned, and not run again once submitted."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import pytest

from answers import ok
from builders import TriggerDraft, Wallet, deploy, event, register
from chain import CHAIN_TESTS, SECONDS_MAX, encoded, selector
from chain_relayer import ENGINE, ChainRelayer
from conftest import Clock
from intent_bodies import operations_body
from muniment.health import health_endpoint
from muniment.protocol.evm.address import Address
from muniment.protocol.evm.hex import Bytes32, HexString
from muniment.protocol.evm.signature import Signature
from muniment.protocol.forms import decode_record
from muniment.protocol.intents.hashes import intent_hash
from muniment.protocol.intents.types import AnyNewIntent
from muniment.protocol.runs.payloads import EventPayload, read_payload
from muniment.protocol.runs.types import NewRun, NewRunOutput
from muniment.protocol.triggers.types import Trigger
from muniment.relayer import loop
from muniment.relayer.runner.results import Made, NotYet
from muniment.relayer.schedule.due import Due
from muniment.service.app import Application
from operator_client import FAR_DEADLINE, SETTLER, operator_key
from pinned_world import CHAIN_ID, Json, Nodal, chain, nodal
from without_server import InProcess

__all__ = ["chain", "nodal"]
pytestmark = CHAIN_TESTS

HOUR = 3_600


@dataclass
class Echo:
    """A function that makes one intent for each event, with the answer of the feed in it."""

    ran: list[int] = field(default_factory=list[int])
    has_answers: bool = True
    # How long after the event the intents are good; None: for ever.
    life_s: int | None = None
    meanwhile: Callable[[], object] = lambda: None

    async def run(self, trigger: Trigger, due: Due) -> Made | NotYet:
        if not self.has_answers:
            return NotYet("no-answer", "no node")
        log = read_payload(due.kind, due.payload)
        assert isinstance(log, EventPayload)
        answer = int(log.topics[1], 16)
        self.ran.append(answer)
        self.meanwhile()
        deadline = FAR_DEADLINE if self.life_s is None else due.timestamp_ms // 1_000 + self.life_s
        members = {
            "feePayer": trigger.signer, "settler": SETTLER, "deadline": str(deadline), "maxFees": [],
            "triggerSig": str(due.sig),
            "operations": [{"opType": 1, "user": trigger.signer, "data": f"0x{answer:02x}", "events": []}],
        }  # fmt: skip
        nonce = log.block_hash
        new = decode_record({**operations_body(answer, **members), "nonce": nonce}, AnyNewIntent)
        run = NewRun(
            trigger_sig=due.sig, trigger_type=due.kind, trigger_data=HexString.from_raw(due.payload),
            timestamp=due.timestamp_ms, result="intents", engine=ENGINE,
            outputs=[NewRunOutput(hash=Bytes32.from_raw(intent_hash(new)))],
        )  # fmt: skip
        return Made(run, [new])


@dataclass
class World:
    """A registry whose clock is that of a chain, a feed whose updates are events, and a relayer."""

    nodal: Nodal
    client: httpx2.AsyncClient
    plain: httpx2.AsyncClient
    clock: Clock
    key: str
    path: Path
    feed: Address
    sig: Signature
    cid: str
    echo: Echo = field(default_factory=Echo)

    def relayer(self, *urls: str, name: str = "relayer", key: str = "") -> ChainRelayer:
        return ChainRelayer(
            nodal=self.nodal, plain=self.plain, clock=self.clock, key=key or self.key, path=self.path / f"{name}.db",
            running=lambda _following, _pins: self.echo, urls=urls,
        )  # fmt: skip

    async def step(self, confirmations: int = 0) -> bool:
        """One step of a relayer that was started anew, at the time of the newest block."""
        return await self.relayer().step(confirmations)

    async def submit(self, run: dict[str, Any]) -> None:
        """Say that a solver has sent the intent of a run."""
        (output,) = run["outputs"]
        for status in ("enqueued", "submitted"):
            change = {"status": status, **({"transactionHash": "0x" + "ab" * 32} if status == "submitted" else {})}
            url, headers = f"/intents/{output['hash']}/status", {"x-operator-key": self.key}
            ok(await self.client.post(url, json=change, headers=headers))

    def update(self, answer: int) -> None:
        """Update the feed. The price of gas is fixed, so that the same transaction can be in another block."""
        ask = self.nodal.chain.ask
        data = "0x" + (selector("set(int256,uint256)") + encoded((answer, 1))).hex()
        sender = ask("eth_accounts")[0]
        sent = ask("eth_sendTransaction", {
            "from": sender, "to": self.feed, "data": data, "gas": hex(500_000), "gasPrice": hex(10**11),
        })  # fmt: skip
        deadline = time.monotonic() + SECONDS_MAX
        while (receipt := ask("eth_getTransactionReceipt", sent)) is None:
            assert time.monotonic() < deadline, "the transaction was not mined"
            time.sleep(0.01)
        assert receipt["status"] == "0x1"

    def forks(self) -> Callable[..., str]:
        """What replaces the blocks after the newest one by two, of which the first has an update, unless it is None.

        Asked for again, a block has the same hash, which is answered.
        """
        ask, start_s, kept = self.nodal.chain.ask, self.nodal.newest_s, [self.nodal.chain.ask("evm_snapshot")]

        def fork(answer: int | None, second: int = 10) -> str:
            ask("evm_revert", kept.pop())
            kept.append(ask("evm_snapshot"))
            ask("anvil_setNextBlockBaseFeePerGas", hex(10**9))  # a revert does not restore it
            if answer is None:
                self.nodal.mine(start_s + second)
            else:
                ask("evm_setNextBlockTimestamp", start_s + second)
                self.update(answer)
            block = ask("eth_getBlockByNumber", "latest", False)
            self.nodal.mine(start_s + 60)
            return block["hash"]

        return fork

    async def statuses(self) -> list[tuple[str, list[str]]]:
        """Of each run, the oldest first: its status, and those of its intents that are recorded."""
        found: list[tuple[str, list[str]]] = []
        for run in await self.runs():
            hashes = [each["hash"] for each in run["outputs"] if each["recorded"]]
            intents = [ok(await self.client.get(f"/intents/{each}")).json()["status"] for each in hashes]
            found.append((run["status"], intents))
        return found

    async def runs(self) -> list[dict[str, Any]]:
        return ok(await self.client.get("/executions", params={"triggerSig": self.sig, "sort": 1})).json()


@pytest.fixture
async def world(
    nodal: Nodal, client: httpx2.AsyncClient, app: Application, clock: Clock, tmp_path: Path
) -> AsyncIterator[World]:
    feed = nodal.feed(1, 1)
    clock.now_ms = 1_000 * nodal.newest_s
    cid = await deploy(client)
    config = event(chainId=CHAIN_ID, contract=feed, topics=[], delta="1h")
    sig = Signature.parse((await register(client, TriggerDraft(cid, config=config)))["sig"])
    nodal.mine(nodal.newest_s + 1)
    transport = InProcess(app)
    async with httpx2.AsyncClient(transport=transport, base_url="http://test") as plain:
        key = await operator_key(app.context)
        yield World(nodal, client, plain, clock, key, tmp_path, feed, sig, cid)


async def test_each_event_runs_once(world: World) -> None:
    assert await world.step()
    world.update(7)
    world.update(8)
    for _ in range(2):
        assert await world.step()
    assert sorted(world.echo.ran) == [7, 8]
    runs = await world.runs()
    assert [(each["result"], each["triggerType"]) for each in runs] == [("intents", 1)] * 2
    assert all(output["recorded"] for each in runs for output in each["outputs"])


async def test_a_step_runs_all_events_of_a_wallet_however_few_places_there_are(world: World) -> None:
    assert await world.step()
    for answer in range(40):
        world.update(answer)
    assert await world.step()
    assert sorted(world.echo.ran) == [*range(40)]


async def test_an_event_waits_for_its_confirmations(world: World) -> None:
    assert await world.step(confirmations=2)
    world.update(7)
    await world.step(confirmations=2)
    assert world.echo.ran == []
    world.nodal.mine(world.nodal.newest_s + 1, world.nodal.newest_s + 2)
    assert await world.step(confirmations=2)
    assert world.echo.ran == [7]


async def test_an_event_that_is_older_than_its_delta_is_missed(world: World) -> None:
    assert await world.step()
    world.update(7)
    world.nodal.mine(world.nodal.newest_s + 2 * HOUR)
    await world.step()
    assert world.echo.ran == []
    (note,) = await world.runs()
    assert (note["result"], note["missedCount"]) == ("missed", 1)


async def test_an_event_that_is_older_than_intents_live_is_missed_without_a_run(world: World) -> None:
    world.echo.life_s = 300
    assert await world.step()
    for answer in (7, 8):  # the first run tells how long intents live
        world.update(answer)
        world.nodal.mine(world.nodal.newest_s + 400)
        await world.step()
    assert world.echo.ran == [7]
    world.update(9)
    assert await world.step()
    assert world.echo.ran == [7, 9]
    runs = [(each["result"], each.get("reason", {}).get("code")) for each in await world.runs()]
    assert runs == [("missed", "too-late"), ("missed", "too-late"), ("intents", None)]


async def test_a_run_of_a_block_that_is_gone_is_orphaned_and_made_again(world: World) -> None:
    assert await world.step()
    snapshot = world.nodal.chain.ask("evm_snapshot")
    world.update(7)
    assert await world.step()
    (first,) = await world.runs()
    later_s = world.nodal.newest_s + 7
    assert first["status"] == "valid"
    world.nodal.chain.ask("evm_revert", snapshot)
    world.nodal.chain.ask("evm_setNextBlockTimestamp", later_s)
    world.update(7)
    await world.step()
    await world.step()
    runs = {each["hash"]: each["status"] for each in await world.runs()}
    assert runs.pop(first["hash"]) == "invalid"
    assert [*runs.values()] == ["valid"]
    assert world.echo.ran == [7, 7]
    found = [ok(await world.client.get(f"/intents/{each['outputs'][0]['hash']}")).json() for each in await world.runs()]
    statuses = {each["executionHash"]: each["status"] for each in found}
    assert statuses.pop(first["hash"]) == "discarded"  # a solver would execute both
    assert [*statuses.values()] == ["created"]


async def test_an_event_in_another_block_is_not_run_again_once_its_intent_was_submitted(world: World) -> None:
    assert await world.step()
    snapshot = world.nodal.chain.ask("evm_snapshot")
    world.update(7)
    assert await world.step()
    (first,) = await world.runs()
    later_s = world.nodal.newest_s + 7
    await world.submit(first)
    world.nodal.chain.ask("evm_revert", snapshot)
    world.nodal.chain.ask("evm_setNextBlockTimestamp", later_s)
    world.update(7)  # the same transaction, in another block
    await world.step()
    await world.step()
    assert world.echo.ran == [7]
    assert sorted(each["result"] for each in await world.runs()) == ["intents", "skipped"]
    (note,) = [each for each in await world.runs() if each["result"] == "skipped"]
    assert note["reason"]["code"] == "other-block"


async def test_an_event_that_another_relayer_ran_in_a_block_that_is_gone_is_the_same_event(
    world: World, app: Application
) -> None:
    other = world.relayer(name="other", key=await operator_key(app.context, "other"))
    for relayer in (world, other):
        assert await relayer.step()
    snapshot = world.nodal.chain.ask("evm_snapshot")
    world.update(7)
    assert await world.step()
    (first,) = await world.runs()
    later_s = world.nodal.newest_s + 7
    await world.submit(first)
    world.nodal.chain.ask("evm_revert", snapshot)
    world.nodal.chain.ask("evm_setNextBlockTimestamp", later_s)
    world.update(7)
    world.update(8)
    for _ in range(2):
        await other.step()
    assert sorted(world.echo.ran) == [7, 8]  # the other relayer has never seen the block that is gone
    notes = [each["reason"]["code"] for each in await world.runs() if each["result"] == "skipped"]
    assert notes == ["other-block"]


async def test_an_equal_event_of_another_relayer_whose_block_stays_is_another_event(
    world: World, app: Application
) -> None:
    other = world.relayer(name="other", key=await operator_key(app.context, "other"))
    token, owner = world.nodal.chain.deploy("MockERC20", "Test", "T", 6), Address.parse("0x" + "0b" * 20)
    draft = TriggerDraft(world.cid, Wallet(2), config=event(chainId=CHAIN_ID, contract=token, topics=[], delta="1h"))
    world.sig = Signature.parse((await register(world.client, draft))["sig"])
    for relayer in (world, other):
        assert await relayer.step()
    world.nodal.mine(world.nodal.newest_s + 2)
    world.nodal.chain.mint(token, owner, 5)
    assert await world.step()
    await world.submit((await world.runs())[0])
    world.nodal.chain.mint(token, owner, 5)
    assert await other.step()
    assert len(world.echo.ran) == 3  # both events, of which one has two runs that agree
    assert [(each["result"], each["validations"]) for each in await world.runs()] == [("intents", 2), ("intents", 1)]


async def test_events_that_nodes_differ_on_for_too_long_are_one_note_an_hour(world: World) -> None:
    receipts: dict[str, Json] = {}

    def change(call: Json, answer: Json) -> Json:
        """What a node answers that has another log beside each, also in receipts."""
        if call["method"] == "eth_getLogs":
            made = [
                {**log, "transactionHash": "0xbad0" + log["transactionHash"][6:], "logIndex": "0x64"}
                for log in answer["result"]
            ]
            receipts.update({log["transactionHash"]: {"blockHash": log["blockHash"], "logs": [log]} for log in made})
            return {**answer, "result": [*answer["result"], *made]}
        if call["method"] == "eth_getTransactionReceipt":
            return {**answer, "result": receipts.get(call["params"][0], answer["result"])}
        return answer

    def later(second: int) -> None:
        world.nodal.mine(world.nodal.newest_s + second)
        relayer.to_newest()

    relayer = world.relayer(world.nodal.chain.url, world.nodal.node(change))
    relayer.to_newest()
    async with relayer.started() as made:
        assert await made.once()
        for answer, second in ((7, 10), (8, HOUR // 2), (9, 10), (10, HOUR), (11, 10)):
            world.update(answer)
            later(10)
            await made.once()
            later(second)
        assert sorted(world.echo.ran) == [7, 8, 9, 10, 11]
        assert 'disputed_logs{chain="8453"} 0\n' not in made.metrics()
        codes: list[list[str]] = []
        for second in (24 * HOUR - HOUR - HOUR // 2, HOUR // 2, HOUR + 100):  # until 8, 10 and 11 are given up
            later(second)
            await made.once()
            codes.append([each["reason"]["code"] for each in await world.runs() if each["result"] == "missed"])
        assert 'disputed_logs{chain="8453"} 0\n' in made.metrics()
    assert codes == [["nodes-differ"], ["nodes-differ"], ["nodes-differ"] * 2]
    assert sorted(world.echo.ran) == [7, 8, 9, 10, 11]


async def test_a_relayer_is_not_ready_while_a_chain_does_not_move(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "_EVENTS_S", 0.05)
    is_ill = [False]

    def change(call: Json, answer: Json) -> Json:
        error = {"code": -32_000, "message": "the node is ill"}
        return {"jsonrpc": "2.0", "id": call["id"], "error": error} if is_ill[0] else answer

    def get(path: str) -> tuple[int, str]:
        answer = httpx2.get(url + path)
        return answer.status_code, answer.text

    async def until(holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(SECONDS_MAX):
            while not await asyncio.to_thread(holds):
                await asyncio.sleep(0.01)

    relayer = world.relayer(world.nodal.node(change))
    relayer.to_newest()
    async with relayer.started() as made, AsyncExitStack() as stack:
        url = await stack.enter_async_context(
            health_endpoint(("127.0.0.1", 0), trouble=made.trouble, metrics=lambda: made.metrics().encode())
        )
        serving = asyncio.create_task(made.serve())
        try:
            await until(lambda: get("/readyz")[0] == 200 and 'head_block{chain="8453"}' in get("/metrics")[1])
            is_ill[0] = True
            await until(lambda: 'node_failures{chain="8453",kind="garbage"}' in get("/metrics")[1])
            for second, status in ((120, 200), (1, 503)):
                world.clock.now_ms = world.nodal.now_ms = world.nodal.now_ms + 1_000 * second
                assert (await asyncio.to_thread(get, "/readyz"))[0] == status
            _, text = await asyncio.to_thread(get, "/readyz")
            assert "chain 8453 does not move: its events were read 121 seconds ago" in text
            assert await asyncio.to_thread(get, "/healthz") == (200, "ok\n")
            assert 'seconds_behind{chain="8453",lane="quiet"} 121\n' in (await asyncio.to_thread(get, "/metrics"))[1]
        finally:
            serving.cancel()
            await asyncio.wait([serving])


async def test_a_verdict_of_another_relayer_on_a_block_that_is_gone_stops_no_later_event(
    world: World, app: Application
) -> None:
    other = await operator_key(app.context, "other")
    assert await world.step()
    snapshot = world.nodal.chain.ask("evm_snapshot")
    world.update(7)
    world.echo.has_answers = False
    await world.step()
    world.nodal.mine(world.nodal.newest_s + 2 * HOUR)
    await world.step()
    world.echo.has_answers = True
    (note,) = await world.runs()
    members = ("triggerSig", "triggerType", "triggerData", "timestamp", "engine")
    verdict = {**{name: note[name] for name in members}, "result": "nothing"}
    ok(await world.client.post("/executions", json=verdict, headers={"x-operator-key": other}))
    assert (await world.client.get(f"/executions/{note['hash']}")).status_code == 404
    later_s = world.nodal.newest_s + 7
    world.nodal.chain.ask("evm_revert", snapshot)
    world.nodal.chain.ask("evm_setNextBlockTimestamp", later_s)
    world.update(7)  # the same transaction, in another block
    world.update(8)
    assert await world.step()
    assert sorted(world.echo.ran) == [7, 8]


async def test_a_run_whose_block_comes_back_is_valid_again(world: World) -> None:
    fork = world.forks()
    assert await world.step()
    fork(7)
    assert await world.step()
    assert await world.statuses() == [("valid", ["created"])]
    fork(None)
    assert await world.step()
    assert await world.statuses() == [("invalid", ["created"])]
    fork(7)
    assert await world.step()
    assert await world.statuses() == [("valid", ["created"])]
    assert world.echo.ran == [7]
    fork(None)
    assert await world.step()
    assert await world.statuses() == [("invalid", ["created"])]


async def test_intents_that_were_withheld_are_written_once_their_block_comes_back(world: World) -> None:
    fork = world.forks()
    assert await world.step()
    fork(7)
    world.echo.meanwhile = lambda: fork(None)
    assert await world.step()
    assert await world.statuses() == [("invalid", [])]
    world.echo.meanwhile = lambda: None
    fork(7)
    for _ in range(2):
        await world.step()
    assert await world.statuses() == [("valid", ["created"])]


async def test_a_run_whose_block_comes_back_too_late_for_its_intents_is_valid_again(world: World) -> None:
    fork = world.forks()
    assert await world.step()
    fork(7)
    world.echo.meanwhile = lambda: fork(None)
    assert await world.step()
    fork(7)
    world.nodal.mine(world.nodal.newest_s + 2 * HOUR)
    for _ in range(2):
        await world.step()
    assert await world.statuses() == [("valid", [])]
    assert world.echo.ran == [7]


async def test_of_an_event_in_two_blocks_one_intent_waits_whichever_comes_back(world: World) -> None:
    fork, blocks = world.forks(), list[str]()
    assert await world.step()
    for second in (10, 20, 10):  # the same transaction
        blocks.append(fork(7, second))
        for _ in range(2):
            await world.step()
    assert blocks[0] == blocks[2] != blocks[1]
    assert await world.statuses() == [("valid", ["discarded"]), ("invalid", ["created"])]
