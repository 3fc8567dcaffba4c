"""The events that triggers wait for: as two nodes have them, in the order of the chain, again after a fork."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import replace
from sqlite3 import IntegrityError
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from chain import CHAIN_TESTS, encoded, selector
from chain_relayer import SETTINGS
from muniment.chains.catalogue import Chain
from muniment.chains.log_reader import LogReader
from muniment.protocol.evm.address import Address
from muniment.protocol.evm.hashing import keccak256
from muniment.protocol.evm.signature import Signature
from muniment.protocol.triggers.typed_data import EVENT
from muniment.relayer.events.chain import ChainEvents, occurrence_of
from muniment.relayer.events.runs import EventRuns
from muniment.relayer.events.shapes import Interests, Waiting
from muniment.relayer.figures import Figures
from muniment.relayer.journal.sqlite import Journal
from muniment.relayer.lives.following import Tracked
from muniment.relayer.runner.pinning import Incomplete
from muniment.relayer.schedule.due import Occurrence, Plan
from pinned_world import CHAIN_ID, Json, Nodal, chain, nodal

__all__ = ["chain", "nodal"]
pytestmark = CHAIN_TESTS

ANY, SOME = (Signature.parse("0x" + f"{number:02x}" * 64 + "1b") for number in (0x11, 0x22))
UPDATED = "0x" + keccak256(b"AnswerUpdated(int256,uint256,uint256)").hex()


def topic(number: int) -> str:
    return f"0x{number:064x}"


def waiting(contract: Address, *topics: list[str]) -> Waiting:
    return Waiting.of({"contract": contract.lower(), "topics": list(topics)})


def events_of(nodal: Nodal, *urls: str, start: int, confirmations: int = 0) -> ChainEvents:
    nodes = nodal.pins(*urls).nodes[CHAIN_ID]
    reader = LogReader(nodes=nodes, confirmations=confirmations, now_ms=lambda: nodal.now_ms, next_block=start)
    return ChainEvents(reader)


class Step(NamedTuple):
    """A step, with the triggers that wait for each event."""

    found: tuple[tuple[Signature, Occurrence], ...]
    next_block: int
    gone_back_to: int | None
    at_head: bool


async def stepped(events: ChainEvents, wanted: dict[Signature, Waiting]) -> Step:
    interests = Interests()
    for sig, each in wanted.items():
        interests.add(sig, each)
    step = await events.step(interests, shapes := [*interests.shapes])
    found = [(sig, occurrence_of(CHAIN_ID, log)) for log in step.logs for sig in {*interests.takers(log, shapes)}]
    return Step(tuple(found), step.next_block, step.gone_back_to, step.at_head)


async def to_head(events: ChainEvents, wanted: dict[Signature, Waiting]) -> list[Step]:
    steps = [await stepped(events, wanted)]
    while not steps[-1].at_head:
        steps.append(await stepped(events, wanted))
    return steps


def found_in(steps: list[Step]) -> list[tuple[Signature, Occurrence]]:
    return [each for step in steps for each in step.found]


def answers_in(steps: list[Step], sig: Signature) -> list[int]:
    return [int(each.log.topics[1], 16) for who, each in found_in(steps) if who == sig]


async def test_a_trigger_gets_the_logs_of_its_contract_with_its_topics(nodal: Nodal) -> None:
    feed, other = nodal.feed(1, 1), nodal.feed(1, 1)
    start = nodal.newest + 1
    for answer in (7, 8, 9):
        nodal.update(feed, answer, 1)
    nodal.update(other, 7, 1)
    wanted = {ANY: waiting(feed), SOME: waiting(feed, [UPDATED], [topic(7), topic(9)], [])}
    steps = await to_head(events_of(nodal, start=start), wanted)
    assert (answers_in(steps, ANY), answers_in(steps, SOME)) == ([7, 8, 9], [7, 9])
    assert steps[-1].next_block == nodal.newest + 1


async def test_an_occurrence_names_its_block_and_its_place_in_the_receipt(nodal: Nodal) -> None:
    feed = nodal.feed(1, 1)
    start = nodal.newest + 1
    second = nodal.newest_s + 50
    nodal.chain.ask("evm_setAutomine", False)
    sender = nodal.chain.ask("eth_accounts")[0]
    sent = [
        nodal.chain.ask(
            "eth_sendTransaction",
            {"from": sender, "to": feed, "data": "0x" + (selector("set(int256,uint256)") + encoded((answer, 1))).hex()},
        )
        for answer in (5, 6)
    ]
    (block,) = nodal.mine(second)
    nodal.chain.ask("evm_setAutomine", True)
    steps = await to_head(events_of(nodal, nodal.chain.url, nodal.node(), start=start), {ANY: waiting(feed)})
    first, last = (each for _, each in found_in(steps))
    assert {first.transaction_hash, last.transaction_hash} == set(sent)
    assert [(each.log.index, each.ordinal) for each in (first, last)] == [(0, 0), (1, 0)]
    assert (last.block_number, last.block_time_s) == (int(block["number"], 16), second)
    assert (last.log.block_hash, last.log.chain_id, last.log.contract) == (block["hash"], CHAIN_ID, feed)


async def test_a_block_is_read_when_enough_blocks_are_on_top(nodal: Nodal) -> None:
    feed = nodal.feed(1, 1)
    start = nodal.newest + 1
    nodal.update(feed, 7, 1)
    events = events_of(nodal, start=start, confirmations=2)
    assert answers_in(await to_head(events, {ANY: waiting(feed)}), ANY) == []
    nodal.mine(nodal.newest_s + 1, nodal.newest_s + 2)
    assert answers_in(await to_head(events, {ANY: waiting(feed)}), ANY) == [7]
    assert answers_in(await to_head(events, {ANY: waiting(feed)}), ANY) == []


async def test_after_a_fork_the_new_blocks_are_read(nodal: Nodal) -> None:
    feed = nodal.feed(1, 1)
    start = nodal.newest + 1
    nodal.update(feed, 7, 1)
    snapshot = nodal.chain.ask("evm_snapshot")
    lost_at = nodal.newest + 1
    nodal.update(feed, 8, 1)
    events, wanted = events_of(nodal, start=start), {ANY: waiting(feed)}
    assert answers_in(await to_head(events, wanted), ANY) == [7, 8]
    nodal.chain.ask("evm_revert", snapshot)
    nodal.mine(nodal.newest_s + 7)
    nodal.update(feed, 9, 1)
    steps = await to_head(events, wanted)
    assert [step.gone_back_to for step in steps if step.gone_back_to is not None] == [lost_at]
    assert answers_in(steps, ANY) == [9]


async def test_a_log_that_a_node_makes_up_is_no_event(nodal: Nodal) -> None:
    feed = nodal.feed(1, 1)
    start = nodal.newest + 1
    nodal.update(feed, 7, 1)

    def lies(call: Json, answer: Json) -> Json:
        if call["method"] not in {"eth_getLogs", "eth_getTransactionReceipt"}:
            return answer
        return {**answer, "result": changed(answer["result"])}

    def changed(value: Any) -> Any:
        if isinstance(value, list):
            return [changed(each) for each in value]
        if "topics" in value:
            return {**value, "topics": [value["topics"][0], topic(66), *value["topics"][2:]]}
        return {**value, "logs": changed(value["logs"])}

    alone = events_of(nodal, nodal.node(lies), start=start)
    assert answers_in(await to_head(alone, {ANY: waiting(feed)}), ANY) == [66]
    two = events_of(nodal, nodal.node(lies), nodal.chain.url, start=start)
    assert answers_in(await to_head(two, {ANY: waiting(feed)}), ANY) == []
    three = events_of(nodal, nodal.node(lies), nodal.chain.url, nodal.node(), start=start)
    assert answers_in(await to_head(three, {ANY: waiting(feed)}), ANY) == [7]


async def test_an_event_waits_for_the_second_node(nodal: Nodal) -> None:
    feed = nodal.feed(1, 1)
    start = nodal.newest + 1
    nodal.update(feed, 7, 1)
    lags = [True]

    def lagging(call: Json, answer: Json) -> Json:
        is_newer = call["method"] == "eth_getBlockByNumber" and int(call["params"][0], 16) >= start
        return {**answer, "result": None} if lags[0] and is_newer else answer

    events = events_of(nodal, nodal.chain.url, nodal.node(lagging), start=start)
    step = await stepped(events, {ANY: waiting(feed)})
    assert (step.found, step.next_block, step.at_head) == ((), start, True)
    nodal.now_s += 10
    with pytest.raises(Incomplete) as caught:
        await stepped(events, {ANY: waiting(feed)})
    assert caught.value.code == "no-answer"
    lags[0] = False
    assert answers_in(await to_head(events, {ANY: waiting(feed)}), ANY) == [7]


async def test_a_log_that_nodes_know_later_than_its_block_is_found(nodal: Nodal) -> None:
    feed = nodal.feed(1, 1)
    start = nodal.newest + 1
    nodal.update(feed, 7, 1)
    lags = [True]

    def lagging(call: Json, answer: Json) -> Json:
        return {**answer, "result": []} if lags[0] and call["method"] == "eth_getLogs" else answer

    events = events_of(nodal, nodal.node(lagging), nodal.node(lagging), start=start)
    second = ChainEvents(replace(events.reader, lag_blocks=128, lag_seconds=120, disputes=None, heads=None))
    assert answers_in(await to_head(events, {ANY: waiting(feed)}), ANY) == []
    assert answers_in(await to_head(second, {ANY: waiting(feed)}), ANY) == []
    lags[0] = False
    for seconds, answers in ((0, []), (119, []), (1, [7])):
        nodal.chain.ask("anvil_mine", hex(128))
        nodal.now_s += seconds
        assert answers_in(await to_head(events, {ANY: waiting(feed)}), ANY) == []
        assert answers_in(await to_head(second, {ANY: waiting(feed)}), ANY) == answers


async def test_a_new_trigger_is_read_from_an_older_block(nodal: Nodal) -> None:
    feed = nodal.feed(1, 1)
    start = nodal.newest + 1
    nodal.update(feed, 7, 1)
    events = events_of(nodal, start=start)
    await to_head(events, {})
    events.reader.go_back_to(start)
    assert answers_in(await to_head(events, {ANY: waiting(feed)}), ANY) == [7]


async def all_planned(events: EventRuns, now_ms: int) -> None:
    while not await events.step(CHAIN_ID, now_ms):
        pass


@contextmanager
def waiting_runs(nodal: Nodal) -> Generator[tuple[Journal, Callable[[], EventRuns]]]:
    """What starts a relayer's events anew, with the journal, for a trigger that waits for an event of a chain."""
    feed, pins = nodal.feed(1, 1), nodal.pins()
    created_ms = 1_000 * nodal.newest_s - 5_000
    nodal.update(feed, 7, 1)
    nodal.now_ms = 1_000 * nodal.newest_s
    trigger: Any = SimpleNamespace(
        config={"chainId": CHAIN_ID, "contract": feed.lower(), "topics": []}, signer=Address.parse("0x" + "01" * 20)
    )
    plan = Plan(sig=ANY, kind=EVENT, created_ms=created_ms, end_ms=0, delta_ms=600_000)
    following: Any = SimpleNamespace(tracked={ANY: Tracked(trigger, plan)}, signer_of=lambda _: trigger.signer)
    registry: Any = None
    with Journal.in_memory() as journal:
        yield journal, lambda: EventRuns(
            chains={CHAIN_ID: Chain(CHAIN_ID, "Local", confirmations=0)}, pins=pins, registry=registry,
            following=following, journal=journal, settings=SETTINGS, figures=Figures(), own_ms=lambda: nodal.now_ms,
        )  # fmt: skip


async def test_an_event_that_could_not_be_planned_is_found_again(nodal: Nodal) -> None:
    with waiting_runs(nodal) as (journal, started):
        events = started()
        journal._connection.execute(
            "CREATE TRIGGER full BEFORE INSERT ON journal_runs BEGIN SELECT raise(ABORT, 'full'); END"
        )
        with pytest.raises(IntegrityError):
            await all_planned(events, nodal.now_ms)
        journal._connection.execute("DROP TRIGGER full")
        await all_planned(events, nodal.now_ms)
        assert journal.waiting_events(1, 1, nodal.now_ms)


async def test_a_relayer_that_ends_before_it_read_a_block_reads_it_after_its_restart(nodal: Nodal) -> None:
    with waiting_runs(nodal) as (journal, started):
        first = started()
        await first._begin(first._lanes_of(CHAIN_ID), nodal.now_ms)
        await all_planned(started(), nodal.now_ms)
        assert journal.waiting_events(1, 1, nodal.now_ms)
