"""A recorded run is made again: by the recorded answers, and by nodes, which tell a true record from a false one."""

from __future__ import annotations

import msgspec
import pytest
import pytest_asyncio

from chain import CHAIN_TESTS
from muniment.guest.sandbox import Sandbox
from muniment.protocol.evm.address import Address
from muniment.protocol.evm.hex import Bytes32
from muniment.protocol.runs.payloads import time_payload
from muniment.protocol.runs.types import RunOutput, RunReason
from muniment.relayer.verify.report import Verification
from pinned_world import CHAIN_ID, Nodal, chain
from verified_world import (
    EVERY_MINUTE,
    OWNER,
    Recorded,
    balance_run,
    cron,
    event_run,
    next_minute,
    nodal,
    price_run,
    recorded,
    sandbox,
)

__all__ = ["chain", "nodal", "sandbox"]
# Records are not changed, so the tests of this module share what made them.
pytestmark = [*CHAIN_TESTS, pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def balance(nodal: Nodal, sandbox: Sandbox) -> Recorded:
    return await balance_run(nodal, sandbox)


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
    found = await balance.verify(run=balance.at_block(block.number - 1))
    assert found.outcome == "different"
    assert f"block {block.number - 1} of chain {CHAIN_ID} is not that of the run" in found.reasons[0]
    found = await balance.verify(run=balance.at_block(block.number + 1))
    assert "is later than the run" in found.reasons[0]
    found = await balance.verify(run=balance.at_block(hash=Bytes32.parse("0x" + "66" * 32)))
    assert "is not on the chain" in found.reasons[0]


async def test_a_quiet_block_is_right_where_the_next_one_is_later_and_never_wrong(balance: Recorded) -> None:
    (block,) = balance.run.blocks
    assert await balance.verify(run=balance.at_block(quiet=True)) == Verification("same")
    found = await balance.verify(run=balance.at_block(block.number - 1, quiet=True))
    assert found.outcome == "unchecked"
    assert "the chain, or the relayer's nodes, stood still" in found.reasons[0]


async def test_a_result_that_the_function_does_not_give_is_different(balance: Recorded) -> None:
    other = RunOutput(hash=Bytes32.parse("0x" + "66" * 32), recorded=True)
    for run in (balance.changed(result="nothing", outputs=[]), balance.changed(outputs=[*balance.run.outputs, other])):
        found = await balance.verify(run=run, offline=True)
        assert found.outcome == "different"
        assert "gives another result" in found.reasons[0]
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
    made = await event_run(nodal, sandbox, is_there=is_there)
    assert (await made.verify(offline=True)).outcome == "consistent"
    expected = Verification("same") if is_there else Verification("different", ("the block does not have the event",))
    assert await made.verify() == expected


async def test_a_run_for_an_event_has_the_time_of_its_block(nodal: Nodal, sandbox: Sandbox) -> None:
    made = await event_run(nodal, sandbox, "nothing")
    assert (await made.verify()).outcome == "same"
    at_ms = made.run.timestamp - 60_000
    found = await made.verify(run=made.changed(timestamp=at_ms))
    assert found.outcome == "different"
    assert f"the run is dated {at_ms}, and the block of its event {made.run.timestamp}" in found.reasons[0]


async def test_a_price_of_an_api_cannot_be_checked_and_one_of_a_feed_can(nodal: Nodal, sandbox: Sandbox) -> None:
    made = await price_run(nodal, sandbox)
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
