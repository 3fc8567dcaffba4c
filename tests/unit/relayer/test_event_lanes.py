"""Lanes of events: a busy contract falls behind alone, and requests, rows and notes are few whoever attacks."""

from __future__ import annotations

import asyncio
import itertools
import threading
from typing import Any, cast

import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from chain import SECONDS_MAX
from event_world import EventWorld, contract, events, sig_of, topic
from made_up_chain import CHAIN_ID
from muniment.protocol.evm.hex import Bytes32, HexString
from muniment.protocol.runs.payloads import EventPayload
from muniment.relayer.events import runs
from muniment.relayer.events.shapes import Interests
from muniment.relayer.journal.entries import State
from muniment.relayer.schedule.due import Occurrence

__all__ = ["events"]

HONEST, BUSY = 1, 2


async def test_200_triggers_on_a_busy_contract_delay_no_event_of_another(events: EventWorld) -> None:
    events.settings = {"event_triggers_per_signer_max": 200, "runs_per_trigger_and_day_max": 300}
    events.events = events.started()
    honest = events.sign(1, signer=1, at=HONEST)
    busy = [events.sign(n, signer=2, at=BUSY) for n in range(2, 202)]
    await events.to_head()
    events.log(BUSY, 250)
    events.log(HONEST, block=events.chain.head)
    await events.to_head()
    assert events.lanes() == {contract(BUSY).lower()}
    assert events.planned() == {honest: 1}
    events.asked()
    for _ in range(2):
        for _ in range(4):
            events.log(BUSY, 20)
        events.log(HONEST, block=events.chain.head)
        assert await events.step()
        (asked,) = events.asked()
        assert asked["address"] == [contract(HONEST).lower()]
    assert events.planned() == {honest: 3}
    await events.others()
    assert events.planned() == {honest: 3, **dict.fromkeys(busy, 300)}
    assert events.heard.codes == [(sig, "run-cap") for sig in busy]
    assert {text.partition(":")[0] for _, _, text in events.heard.told} == {"110 events"}


async def test_planning_gives_others_a_turn_and_waits_for_the_disk_once(events: EventWorld) -> None:
    """Counts, no times: what is planned between two turns of the loop, and how rows lie in the journal."""
    sigs = [events.sign(n, signer=2, at=BUSY) for n in range(1, 51)]
    await events.to_head()
    events.log(BUSY, 100)
    statements: list[str] = []
    pieces: list[int] = []
    events.journal._connection.set_trace_callback(statements.append)

    async def beat() -> None:
        while True:
            pieces.append(sum(each.startswith("INSERT OR IGNORE INTO journal_runs") for each in statements))
            await asyncio.sleep(0)

    task = asyncio.create_task(beat())
    await events.to_head()
    task.cancel()
    assert events.planned() == dict.fromkeys(sigs, 100)
    assert max(after - before for before, after in itertools.pairwise(pieces)) == 200
    runs = [each for each in statements if each.startswith("INSERT OR IGNORE INTO journal_runs")]
    changes = sum(before.split("sig =")[1] != after.split("sig =")[1] for before, after in itertools.pairwise(runs))
    assert changes < 2 * len(sigs)  # rows of one trigger are neighbours
    assert sum(each.startswith("INSERT INTO journal_events") for each in statements) == 100
    assert sum(each == "PRAGMA synchronous=FULL" for each in statements) == 1  # the place of the lane


async def test_logs_that_are_known_and_notes_give_others_a_turn_too(events: EventWorld) -> None:
    events.settings = {"runs_per_trigger_and_day_max": 1}
    events.events = events.started()
    turns, told = [0], list[int]()
    events.heard.on_tell = lambda: told.append(turns[0])

    async def beat() -> None:
        while True:
            turns[0] += 1
            await asyncio.sleep(0)

    sigs = [events.sign(n, signer=2, at=BUSY) for n in range(1, 6)]
    tracked = [events.tracked[sig] for sig in sigs]
    payload = EventPayload(CHAIN_ID, Bytes32(topic(1)), 0, contract(BUSY), (), HexString("0x"))
    found = [
        (Occurrence(replace(payload, index=n), 1, events.now_ms // 1_000, Bytes32(topic(n)), 0), tracked)
        for n in range(1_000)
    ]
    task = asyncio.create_task(beat())
    await events.events.planner.plan(found, events.now_ms)
    assert len(set(told)) == len(told) == len(sigs)
    turns[0] = 0
    assert not await events.events.planner.plan(found, events.now_ms, is_new=True)
    task.cancel()
    assert turns[0] >= 5


async def test_a_busy_contract_that_came_to_the_head_is_read_with_the_others_again(events: EventWorld) -> None:
    events.sign(1, signer=1, at=BUSY)
    await events.to_head()
    events.log(BUSY, 250)
    await events.to_head()
    assert events.lanes()
    events.log(BUSY)
    await events.to_head()
    for _ in range(2):
        await events.others()
    assert not events.lanes()
    events.log(BUSY)
    await events.to_head()
    assert events.planned()[sig_of(1)] == 252


async def test_a_contract_that_returns_to_the_others_is_read_in_the_range_that_they_are_reading(
    events: EventWorld,
) -> None:
    events.sign(1, signer=1, at=HONEST)
    events.sign(2, signer=2, at=BUSY)
    await events.to_head()
    events.log(BUSY, 250)
    await events.to_head()
    await events.others()
    (shape,) = events.events._lanes[CHAIN_ID].own
    events.log(BUSY)
    lanes, calmed = events.events._lanes[CHAIN_ID], list[bool]()

    loop, is_calmed = asyncio.get_running_loop(), threading.Event()

    def calm() -> None:
        calmed.append(lanes.calm(shape, lanes.quiet.events.reader.next_block or 0))
        is_calmed.set()

    def change(method: str, _params: list[Any], result: Any) -> Any:
        if method == "eth_getLogs" and not is_calmed.is_set():
            loop.call_soon_threadsafe(calm)
            is_calmed.wait(SECONDS_MAX)
        return result

    events.node.change = change
    await events.to_head()
    assert (calmed, events.lanes(), events.planned()[sig_of(2)]) == ([True], set(), 251)


async def test_a_lane_has_its_place_after_a_restart(events: EventWorld) -> None:
    events.sign(1, signer=1, at=HONEST)
    events.sign(2, signer=2, at=BUSY)
    await events.to_head()
    events.log(BUSY, 250)
    await events.to_head()
    events.log(HONEST)
    events.log(BUSY, 3)
    events.events = events.started()
    await events.to_head()
    assert events.lanes() == {contract(BUSY).lower()}
    assert events.planned() == {sig_of(1): 1}
    await events.others()
    assert events.planned() == {sig_of(1): 1, sig_of(2): 253}


async def test_a_signer_has_three_lanes_and_further_busy_contracts_are_noted(events: EventWorld) -> None:
    for n in range(1, 6):
        events.sign(n, signer=1, at=n)
    await events.to_head()
    for n in range(1, 6):
        events.log(n, 201)
        await events.to_head()
    assert len(events.lanes()) == 3
    assert events.heard.codes == [(sig_of(4), "too-busy"), (sig_of(5), "too-busy")]
    due = events.heard.told[-1][0]
    assert events.journal.entry(due.sig, due.kind, due.payload) is None  # else it would be no note
    events.asked()
    events.log(5)
    await events.to_head()
    assert events.asked() == []  # nothing quiet is left
    assert events.events.places()[0].too_busy == 2


async def test_a_contract_that_is_refused_with_too_many_logs_for_a_step_is_noted_too(events: EventWorld) -> None:
    sigs = [events.sign(n, signer=1, at=n) for n in range(1, 5)]
    await events.to_head()
    for n in range(1, 4):
        events.log(n, 201)
        await events.to_head()
    for _ in range(2):
        events.log(4, 300)
    await events.to_head()
    ((due, code, _),) = events.heard.told
    assert (due.sig, code) == (sigs[3], "too-busy")
    assert due.event is not None


async def test_quiet_contracts_with_many_logs_together_stay_in_one_request(events: EventWorld) -> None:
    """Down to one block a step, which has more logs than a step else has."""
    sigs = [events.sign(n, signer=n, at=n, topics=[[topic(1)]]) for n in range(1, 31)]
    await events.to_head()
    for _ in range(2):
        events.chain.head += 1
        for n in range(1, 31):
            events.log(n, 20, block=events.chain.head)
    events.asked()
    await events.to_head()
    assert events.planned() == dict.fromkeys(sigs, 40)
    assert {len(each["address"]) for each in events.asked()} == {30}
    assert not events.lanes()


async def test_a_busy_contract_among_many_in_one_request_is_found(events: EventWorld) -> None:
    for n in range(1, 31):
        events.sign(n, signer=n, at=n, topics=[[topic(1)]])
    await events.to_head()
    for _ in range(2):
        events.log(BUSY, 300)
    events.log(HONEST)
    events.asked()
    await events.to_head()
    assert events.lanes() == {contract(BUSY).lower()}
    assert {len(each["address"]) for each in events.asked()} == {30, 29}


async def test_what_to_ask_is_worked_out_once(events: EventWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    events.sign(1, signer=1, at=HONEST)
    await events.to_head()
    worked_out: list[object] = []
    filters = Interests.filters
    monkeypatch.setattr(Interests, "filters", lambda *given: worked_out.append(given) or filters(*given))
    for _ in range(3):
        events.log(HONEST)
        await events.to_head()
    assert len(worked_out) <= 1
    events.sign(2, signer=1, at=BUSY)
    events.log(BUSY)
    await events.to_head()
    assert events.planned() == {sig_of(1): 3, sig_of(2): 1}


async def busy_lanes(events: EventWorld, *contracts: int) -> None:
    for n in contracts:
        events.sign(n, signer=1, at=n)
    await events.to_head()
    for n in contracts:
        events.log(n, 201)
    await events.to_head()
    assert events.lanes() == {contract(n).lower() for n in contracts}
    events.log(contracts[0])
    events.log(contracts[-1])


async def test_a_lane_that_fails_holds_up_no_other(events: EventWorld) -> None:
    await busy_lanes(events, 1, 2)
    events.tracked[sig_of(1)] = events.tracked[sig_of(1)]._replace(plan=cast("Any", None))
    with pytest.raises(AttributeError):
        await events.others()
    assert events.planned() == {sig_of(2): 202}


async def test_a_lane_that_is_slow_holds_up_no_other(events: EventWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "_OTHERS_S", 0.05)
    await busy_lanes(events, 1, 2)
    answers = threading.Event()

    def change(method: str, params: list[Any], result: object) -> object:
        if method == "eth_getLogs" and params[0]["address"] == [contract(1).lower()]:
            answers.wait()
        return result

    events.node.change = change
    try:
        while events.planned()[sig_of(2)] < 202:
            assert not await events.events.step_others(CHAIN_ID, events.now_ms)
        events.log(2)
        while events.planned()[sig_of(2)] < 203:
            assert not await events.events.step_others(CHAIN_ID, events.now_ms)
        assert events.planned()[sig_of(1)] == 0
    finally:
        answers.set()
    await events.others()
    assert events.planned()[sig_of(1)] == 202
    await events.events.close()


async def test_the_signer_with_most_lanes_loses_one_to_another(events: EventWorld) -> None:
    for n in range(1, 17):
        events.sign(n, signer=(n + 2) // 3, at=n)
    await events.to_head()
    for n in range(1, 17):
        events.log(n, 201)
        await events.to_head()
    assert len(events.lanes()) == 15
    assert contract(16).lower() in events.lanes()
    assert events.events.places()[0].too_busy == 1


async def test_300_topics_and_300_contracts_are_few_requests(events: EventWorld) -> None:
    honest = events.sign(1, signer=1, at=HONEST, topics=[[topic(1)], [topic(7)]])
    for n in range(2, 102):
        events.sign(n, signer=2, at=BUSY, topics=[[topic(n)]])
        events.sign(100 + n, signer=3, at=1_000 + n, topics=[[topic(1)]])
        events.sign(200 + n, signer=4, at=BUSY, topics=[[topic(1)], [topic(n)], []])
    await events.to_head()
    events.asked()
    events.log(HONEST, topics=[topic(1), topic(7)])
    events.log(HONEST, topics=[topic(1), topic(8)], block=events.chain.head)
    await events.to_head()
    asked = events.asked()
    assert len(asked) == 4
    of_busy = [each["topics"] for each in asked if each["address"] == [contract(BUSY).lower()]]
    (union,) = [topics[1] for topics in of_busy if topics[1:]]
    assert sorted(union) == [topic(n) for n in range(2, 102)]
    assert events.planned() == {honest: 1}


async def test_a_trigger_takes_only_its_own_topics_whatever_others_ask(events: EventWorld) -> None:
    first = events.sign(1, signer=1, at=BUSY, topics=[[], [topic(1)], [topic(2)]])
    events.sign(2, signer=2, at=BUSY, topics=[[], [topic(3)], [topic(4)]])
    third = events.sign(3, signer=2, at=BUSY, topics=[[topic(9), topic(8)], [], []])
    await events.to_head()
    for topics in ([9, 1, 2], [9, 1, 4], [8, 3, 2], [7, 1, 2], [9], [9, 1]):
        events.log(BUSY, topics=[topic(each) for each in topics])
    await events.to_head()
    assert events.planned() == {first: 2, third: 3}


async def test_a_signer_has_so_many_triggers_for_events_and_the_next_takes_the_place_of_one_that_ended(
    events: EventWorld,
) -> None:
    events.settings = {"event_triggers_per_signer_max": 2}
    events.events = events.started()
    sigs = [events.sign(n, signer=1, at=n) for n in (1, 2, 3)]
    other = events.sign(4, signer=2, at=3)
    await events.to_head()
    for n in (1, 2, 3):
        events.log(n)
    await events.to_head()
    assert events.planned() == {sigs[0]: 1, sigs[1]: 1, other: 1}
    next_block = events.chain.head + 1
    events.asked()
    events.end(sigs[0])
    events.log(3)
    await events.to_head()
    assert events.planned()[sigs[2]] == 1
    assert {int(each["fromBlock"], 16) for each in events.asked()} == {next_block}  # nothing is read again for it


async def test_the_triggers_that_were_registered_first_are_read_whatever_order_they_are_seen_in(
    events: EventWorld,
) -> None:
    events.settings = {"event_triggers_per_signer_max": 2}
    oldest, second = events.sign(3, signer=1, at=3), []
    for n in (2, 1):
        events.chain.head += 1
        second.append(events.sign(n, signer=1, at=n))
    events.chain.head += 1
    events.tracked = dict(reversed(events.tracked.items()))
    with capture_logs() as lines:
        events.events = events.started()
        await events.to_head()
        for sig in events.tracked:
            events.events.see(sig)
    assert [each["trigger"] for each in lines if "too many" in each["event"]] == [second[1]]
    for n in (1, 2, 3):
        events.log(n)
    await events.to_head()
    assert events.planned() == {oldest: 1, second[0]: 1}


async def test_a_log_that_is_too_long_is_told_without_its_data(events: EventWorld) -> None:
    sig = events.sign(1, signer=1, at=HONEST)
    await events.to_head()
    events.log(HONEST, data="0x" + "ab" * 70_000)
    await events.to_head()
    assert not events.planned()
    ((due, code, _),) = events.heard.told
    assert (due.sig, code, len(due.payload) < 1_000) == (sig, "too-busy", True)


async def test_a_signer_fills_a_sixteenth_of_the_journal(events: EventWorld) -> None:
    events.settings = {"journal_bytes_max": 16 * 150_000}
    events.events = events.started()
    greedy, honest = events.sign(1, signer=1, at=BUSY), events.sign(2, signer=2, at=HONEST)
    await events.to_head()
    for n in range(20):
        events.log(BUSY, data="0x" + f"{n:02x}" * 20_000)
        events.log(HONEST)
        await events.to_head()
    assert events.planned()[honest] == 20
    assert events.planned()[greedy] < 10
    assert (greedy, "too-busy") in events.heard.codes


async def test_a_full_journal_takes_what_signers_with_little_need(events: EventWorld) -> None:
    """What is published counts too: its logs are kept."""
    greedy, honest = events.sign(1, signer=1, at=BUSY), events.sign(2, signer=2, at=HONEST)
    await events.to_head()
    for n in range(20):
        events.log(BUSY, data="0x" + f"{n:02x}" * 20_000)
    await events.to_head()
    for entry in events.journal.unfinished(State.PLANNED):
        events.journal.ran(entry.due, "nothing", b"", b"", 0)
        events.journal.published(entry, 0)
    events.settings = {"journal_bytes_max": 256 * 1_500}
    events.events = events.started()
    for _ in range(3):
        events.log(BUSY)
        events.log(HONEST)
        await events.to_head()
    assert [entry.sig for entry in events.journal.unfinished(State.PLANNED)] == [honest] * 3
    assert {*events.heard.codes} == {(greedy, "too-busy")}


async def test_an_event_runs_no_later_than_the_window_of_the_operator(events: EventWorld) -> None:
    events.settings = {"event_window_max_ms": 60_000}
    events.events = events.started()
    events.sign(1, signer=1, at=HONEST, delta_ms=3_600_000)
    await events.to_head()
    events.log(HONEST)
    await events.to_head()
    (entry,) = events.journal.unfinished(State.PLANNED)
    assert entry.until_ms - entry.timestamp_ms == 60_000
    events.log(HONEST)
    events.chain.head += 61
    await events.to_head()
    assert len(events.heard.missed) == 1


async def test_metrics_tell_how_far_each_lane_was_read(events: EventWorld) -> None:
    events.sign(1, signer=1, at=HONEST)
    events.sign(2, signer=2, at=BUSY)
    await events.to_head()
    events.log(BUSY, 250)
    await events.to_head()
    (place,) = events.events.places()
    assert (place.chain_id, place.head_block) == (CHAIN_ID, events.chain.head)
    assert place.next_block["quiet"] == events.chain.head + 1
    assert len(place.next_block) == 3
    assert place.seconds_behind["quiet"] == 0
    events.chain.head += 30
    assert events.events.places()[0].seconds_behind["quiet"] == pytest.approx(30)
