"""A recorded run is made again: by the recorded answers, and by nodes, which tell a true record from a false one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
import pytest_asyncio

import guest_functions
from chain import CHAIN_TESTS, LocalChain
from muniment.guest.sandbox import Sandbox
from muniment.protocol.evm.address import Address
from muniment.protocol.evm.hex import Bytes32, HexString
from muniment.protocol.evm.signature import Signature
from muniment.protocol.intents.types import FIRST, Generation
from muniment.protocol.runs.hashes import execution_hash
from muniment.protocol.runs.payloads import EventPayload, event_payload, time_payload
from muniment.protocol.runs.texts import Engine
from muniment.protocol.runs.types import NewRun, Run, RunAnswer, RunReason
from muniment.protocol.triggers.types import Trigger
from muniment.protocol.wire import decode_text, encode, iso_time
from muniment.relayer.runner.answers import Answers
from muniment.relayer.runner.attempt import Consent, Function, Settling, attempt
from muniment.relayer.runner.context import settlers_of
from muniment.relayer.runner.pinning import Pins
from muniment.relayer.runner.record import recorded_run
from muniment.relayer.runner.settlers import Generations
from muniment.relayer.schedule.due import Due, Occurrence
from muniment.relayer.verify.verifying import Verification, Verifier
from pinned_world import CHAIN_ID, Nodal, chain, nodal_of

__all__ = ["chain"]
# Records are not changed, so the tests of this module share what made them.
pytestmark = [*CHAIN_TESTS, pytest.mark.asyncio(loop_scope="module")]

SIG = Signature.parse("0x" + "11" * 64 + "1b")
OWNER = Address.parse("0x" + "ab" * 20)
RECIPIENT = Address.parse("0x" + "cd" * 20)
RELAYER = "0x" + "ee" * 20
MINUTE = 60


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def sandbox() -> AsyncIterator[Sandbox]:
    async with Sandbox.open() as made:
        yield made


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def nodal(chain: LocalChain) -> AsyncIterator[Nodal]:
    async with nodal_of(chain) as made:
        yield made


@dataclass
class Recorded:
    """A run as a relayer made and recorded it, and what it takes to make it again."""

    nodal: Nodal
    sandbox: Sandbox
    run: Run
    trigger: Trigger
    function: Function
    generations: dict[Address, Generation]
    chain: dict[str, Any]

    async def verify(self, *urls: str, run: Run | None = None, offline: bool = False, **members: Any) -> Verification:
        pins = None if offline else self.nodal.pins(*urls, **{**self.chain, **members})
        verifier = Verifier(sandbox=self.sandbox, pins=pins, generations=Generations({}, {**self.generations}))
        return await verifier.verify(run or self.run, self.trigger, self.function)

    def changed(self, **members: Any) -> Run:
        """The record with other members, and the hash that goes with them."""
        run = msgspec.structs.replace(self.run, **members)
        outputs = [each.hash.raw for each in run.outputs]
        computed = execution_hash(run.trigger_sig, run.trigger_type, run.trigger_data.raw, run.result, outputs)
        return msgspec.structs.replace(run, hash=type(run.hash).from_raw(computed))

    def with_answer(self, **members: Any) -> Run:
        """The record with another answer to its one question."""
        assert isinstance(self.run.inputs, list)
        (question,) = self.run.inputs
        answer = msgspec.convert(members, RunAnswer, dec_hook=decode_text)
        return self.changed(inputs=[msgspec.structs.replace(question, answer=answer)])


def trigger_of(config: dict[str, Any], input: dict[str, Any], created_s: int) -> Trigger:
    example = {**Trigger.example, "sig": SIG, "signer": OWNER, "config": config, "input": input, "endDate": 0}
    example["createdAt"] = iso_time(1_000 * created_s)
    return msgspec.convert(example, Trigger, dec_hook=decode_text)


async def recorded(
    nodal: Nodal, sandbox: Sandbox, name: str, input: dict[str, Any], *, due: Due, config: dict[str, Any], **chain: Any
) -> Recorded:
    """A run of a sample function as a relayer makes it, with the one node of the chain."""
    settler = nodal.chain.deploy("MiniSettlerLegacy")
    nodal.mine(due.timestamp_ms // 1_000 + 600)
    chain = {"settlers": (settler,), **chain}
    pins: Pins = nodal.pins(**chain)
    settlers = settlers_of([pins.nodes[CHAIN_ID].chain])
    generations = {settler: FIRST}
    function = Function(await sandbox.compile_module(guest_functions.kept(name)), guest_functions.INPUTS[name])
    trigger = trigger_of(config, input, due.timestamp_ms // 1_000 - 3_600)
    event = None if due.event is None else due.event.log
    answers = Answers(pins=pins, timestamp_ms=due.timestamp_ms, event=event)
    made, intents = await attempt(
        due, Consent.of(trigger), function, sandbox=sandbox, answers=answers,
        settling=Settling(settlers=settlers, generations=Generations({}, {**generations})),
    )  # fmt: skip
    new, _ = recorded_run(due, made, intents, answers=answers, settlers=settlers, engine=Engine("tests"))
    return Recorded(nodal, sandbox, shown(new), trigger, function, generations, chain)


def shown(new: NewRun) -> Run:
    """A record as the registry shows it."""
    members: dict[str, Any] = {
        name: value for name, value in msgspec.json.decode(encode(new)).items() if value is not None
    }
    members["outputs"] = [{**each, "recorded": True} for each in members["outputs"]]
    own = {"relayer": RELAYER, "status": "valid", "validations": 1, "records": [], "conflicts": []}
    return msgspec.convert({**members, **own, "createdAt": iso_time(0)}, Run, dec_hook=decode_text)


def next_minute(nodal: Nodal) -> int:
    return (nodal.newest_s // MINUTE + 2) * MINUTE


def cron(second: int) -> Due:
    return Due(SIG, 0, time_payload(1_000 * second), 1_000 * second, 1_000 * second)


EVERY_MINUTE = {"type": 0, "schedule": "* * * * *", "delta": "10m", "endDate": 0}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def balance(nodal: Nodal, sandbox: Sandbox) -> Recorded:
    """A run that asked a contract for a balance, and sent a transfer."""
    token = nodal.chain.deploy("MockERC20", "Test", "T", 6)
    nodal.chain.mint(token, OWNER, 5)
    second = next_minute(nodal)
    nodal.mine(second - 10)
    values = {"amount": "1", "recipient": str(RECIPIENT), "fee": "1", "above": "4"}
    input = {"chainId": CHAIN_ID, "token": str(token), **values}
    return await recorded(nodal, sandbox, "balance", input, due=cron(second), config=EVERY_MINUTE)


async def test_a_true_record_is_the_same_with_nodes_and_consistent_without(balance: Recorded) -> None:
    assert balance.run.result == "intents"
    token = Address.parse(balance.trigger.input["token"])
    balance.nodal.chain.mint(token, OWNER, 7)
    assert await balance.verify() == Verification("same")
    assert await balance.verify(offline=True) == Verification("consistent")


async def test_a_false_answer_is_found_by_nodes_alone(balance: Recorded) -> None:
    run = balance.with_answer(success=True, data=f"0x{6:064x}")
    found = await balance.verify(run=run)
    assert found.outcome == "different"
    assert "the nodes answer" in found.reasons[0]
    run = balance.with_answer(success=True, data=f"0x{4:064x}")
    assert (await balance.verify(run=run, offline=True)).outcome == "different"


async def test_a_block_that_is_not_that_of_the_run_is_different(balance: Recorded) -> None:
    (block,) = balance.run.blocks
    number = block.number + 1
    hash_ = balance.nodal.chain.ask("eth_getBlockByNumber", hex(number), False)["hash"]
    later = msgspec.structs.replace(block, number=number, hash=type(block.hash).parse(hash_))
    found = await balance.verify(run=balance.changed(blocks=[later]))
    assert found.outcome == "different"
    assert f"block {number} of chain {CHAIN_ID} is not that of the run" in found.reasons[0]
    elsewhere = msgspec.structs.replace(block, hash=type(block.hash).parse("0x" + "66" * 32))
    found = await balance.verify(run=balance.changed(blocks=[elsewhere]))
    assert "is not on the chain" in found.reasons[0]


async def test_a_result_that_the_function_does_not_give_is_different(balance: Recorded) -> None:
    for run in (balance.changed(result="nothing", outputs=[]), balance.changed(outputs=balance.run.outputs * 2)):
        found = await balance.verify(run=run, offline=True)
        assert found.outcome == "different"
        assert "gives another result" in found.reasons[0]
    found = await balance.verify(run=balance.changed(logs=[]), offline=True)
    assert found.reasons == ("the function logs other lines here",)
    found = await balance.verify(run=balance.changed(inputs=[]), offline=True)
    assert "which the record does not have" in found.reasons[0]


async def test_a_run_at_another_time_than_the_schedule_is_different(balance: Recorded) -> None:
    at_ms = balance.run.timestamp + 1_000
    data = type(balance.run.trigger_data).from_raw(time_payload(at_ms))
    found = await balance.verify(run=balance.changed(trigger_data=data, timestamp=at_ms), offline=True)
    assert found == Verification("different", ("the schedule of this trigger has no run at this time",))


async def test_without_a_node_of_its_chain_a_run_cannot_be_checked(balance: Recorded) -> None:
    found = await balance.verify("http://127.0.0.1:1")
    assert found.outcome == "unchecked"
    assert "too few nodes" in found.reasons[0]


async def test_a_note_cannot_be_checked(balance: Recorded) -> None:
    run = balance.changed(result="stopped", reason=RunReason(code="time"), outputs=[])
    found = await balance.verify(run=run)
    assert found == Verification("unchecked", ("stopped (time) is what its relayer noted, and cannot be repeated",))


async def test_a_run_that_asked_nothing_needs_no_node(nodal: Nodal, sandbox: Sandbox) -> None:
    second = next_minute(nodal)
    made = await recorded(nodal, sandbox, "nothing", {}, due=cron(second), config=EVERY_MINUTE)
    assert await made.verify(offline=True) == Verification("same")


@pytest.mark.parametrize("is_there", [True, False])
async def test_an_event_is_looked_for_in_its_block(nodal: Nodal, sandbox: Sandbox, *, is_there: bool) -> None:
    feed = nodal.feed(1, 1)
    head = nodal.newest
    block = nodal.chain.ask("eth_getBlockByNumber", hex(head), False)
    (log,) = nodal.chain.ask("eth_getLogs", {"fromBlock": hex(head), "toBlock": hex(head), "address": feed})
    topics = [*log["topics"][:-1], log["topics"][-1] if is_there else "0x" + "66" * 32]
    payload = EventPayload(
        CHAIN_ID, Bytes32.parse(block["hash"]), int(log["logIndex"], 16), feed,
        tuple(Bytes32.parse(each) for each in topics), HexString.parse(log["data"]),
    )  # fmt: skip
    at_ms = 1_000 * int(block["timestamp"], 16)
    occurrence = Occurrence(payload, head, at_ms // 1_000, Bytes32.parse(log["transactionHash"]), 0)
    due = Due(SIG, 1, event_payload(payload), at_ms, at_ms, occurrence)
    config = {"type": 1, "chainId": CHAIN_ID, "contract": str(feed), "topics": [], "delta": "1h", "endDate": 0}
    input = {"feeToken": str(RECIPIENT), "fee": "1"}
    made = await recorded(nodal, sandbox, "event", input, due=due, config=config)
    assert (await made.verify(offline=True)).outcome == "consistent"
    expected = Verification("same") if is_there else Verification("different", ("the block does not have the event",))
    assert await made.verify() == expected


async def test_a_price_of_an_api_cannot_be_checked_and_one_of_a_feed_can(nodal: Nodal, sandbox: Sandbox) -> None:
    token = nodal.chain.deploy("MockERC20", "Test", "T", 6)
    feed = nodal.feed(10**8, nodal.newest_s)
    second = next_minute(nodal)
    nodal.mine(second - 1)
    values = {"amount": "1", "recipient": str(RECIPIENT), "fee": "1", "below": str(2 * 10**18)}
    input = {"chainId": CHAIN_ID, "token": str(token), **values}
    made = await recorded(
        nodal, sandbox, "price", input, due=cron(second), config=EVERY_MINUTE, feeds={token: (feed, 3_600)}
    )
    assert made.run.result == "intents"
    assert await made.verify() == Verification("same")
    assert isinstance(made.run.inputs, list)
    (question,) = made.run.inputs
    of_api = msgspec.structs.replace(question, block=msgspec.UNSET, calls=msgspec.UNSET)
    found = await made.verify(run=made.changed(inputs=[of_api], blocks=[]))
    assert found.outcome == "unchecked"
    assert "the price is of an API" in found.reasons[0]
    found = await made.verify(feeds={})
    assert found.outcome == "unchecked"
    assert "depends on settings" in found.reasons[0]
