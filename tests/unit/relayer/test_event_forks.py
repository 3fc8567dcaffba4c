"""Reorganisations, chains that are begun anew, and triggers that end and return: no event and no orphan is lost."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from event_world import EventWorld, contract, events, sig_of
from made_up_chain import CHAIN_ID
from muniment.chains import ranges
from muniment.chains.range_views import range_view
from muniment.relayer.events import runs
from muniment.relayer.events.forks import event_of
from muniment.relayer.journal.entries import Entry, State

__all__ = ["events"]

HONEST, BUSY = 1, 2
HOUR_MS = 3_600_000


@dataclass
class Registry:
    """A registry with one intent of each run; it is told which runs are orphaned, and which intents are discarded."""

    orphaned: list[str] = field(default_factory=list[str])
    discarded: list[str] = field(default_factory=list[str])

    @property
    def runs(self) -> Any:
        return SimpleNamespace(orphan=self._orphan, get=self._run, list=self._no_runs)

    @property
    def intents(self) -> Any:
        return SimpleNamespace(get=self._intent, move=self._discard)

    async def _orphan(self, hash_: str, *_block: object) -> None:
        self.orphaned.append(hash_)

    async def _run(self, hash_: str) -> Any:
        return SimpleNamespace(outputs=[SimpleNamespace(hash=hash_)])

    async def _no_runs(self, **_query: object) -> AsyncIterator[Any]:
        for run in ():
            yield run

    async def _intent(self, hash_: str) -> Any:
        return SimpleNamespace(status="discarded" if hash_ in self.discarded else "created")

    async def _discard(self, hash_: str, _status: str) -> Any:
        self.discarded.append(hash_)
        return await self._intent(hash_)


def restart(events: EventWorld, registry: Registry) -> None:
    events.events = events.started()
    object.__setattr__(events.events.forks, "registry", registry)
    for sig in events.tracked:
        events.events.see(sig)


async def read(events: EventWorld) -> None:
    await events.to_head()
    await events.others()


def publish(events: EventWorld, entry: Entry) -> str:
    """The hash of the run, which is that of the block."""
    block = event_of(entry.payload).block_hash
    events.journal.ran(entry.due, "intents", b"{}", block.raw, events.now_ms)
    events.journal.published(entry, events.now_ms)
    return block


def planned(events: EventWorld, at: int) -> list[Entry]:
    entries = events.journal.unfinished(State.PLANNED)
    return [each for each in entries if event_of(each.payload).contract == contract(at)]


def replace_block(events: EventWorld, at: int) -> None:
    """The newest block is replaced by one that has the event of this contract too."""
    log = next(log for log in events.chain.logs if log["address"] == contract(at).lower())
    events.chain.fork_at, events.chain.fork = events.chain.head, "other"
    events.log(at, block=events.chain.head, transactionHash=log["transactionHash"])


async def run_in_other_block(events: EventWorld, registry: Registry) -> tuple[Entry, str]:
    """The run of a block that is gone, which still waits, and the hash of the one in its place, which was published."""
    gone, other = planned(events, HONEST)
    assert await events.events.forks.may_run(other.due)
    assert not await events.events.forks.was_submitted(other.due)
    assert not registry.discarded
    return gone, publish(events, other)


@contextmanager
def at_next_range(monkeypatch: pytest.MonkeyPatch, before: Callable[[], Awaitable[None]]) -> Generator[None]:
    """Do something between the look of a step and its range."""

    async def view(*given: Any, **more: Any) -> Any:
        patch.undo()
        await before()
        return await range_view(*given, **more)

    with monkeypatch.context() as patch:
        patch.setattr(ranges, "range_view", view)
        yield


def blocks_asked(events: EventWorld) -> int:
    return sum(int(each["toBlock"], 16) - int(each["fromBlock"], 16) + 1 for each in events.asked())


@pytest.fixture
def registry(events: EventWorld) -> Registry:
    made = Registry()
    restart(events, made)
    return made


@pytest.mark.parametrize("is_signed", [False, True])
async def test_a_reorganisation_is_seen_also_where_a_new_trigger_makes_the_reader_go_back(
    events: EventWorld, registry: Registry, *, is_signed: bool
) -> None:
    events.sign(1, signer=1, at=HONEST)
    await read(events)
    created_ms = events.now_ms
    events.chain.head += 2
    events.log(HONEST)
    await read(events)
    (entry,) = planned(events, HONEST)
    gone = publish(events, entry)
    replace_block(events, HONEST)
    if is_signed:
        events.sign(2, signer=2, at=9, created_ms=created_ms)
    for _ in range(3):
        events.chain.head += 1
        await read(events)
    assert registry.orphaned == [gone]
    assert len(planned(events, HONEST)) == 1


async def test_a_reorganisation_is_seen_also_after_events_could_not_be_planned(
    events: EventWorld, registry: Registry
) -> None:
    events.sign(1, signer=1, at=HONEST)
    await read(events)
    events.log(HONEST)
    plan = events.events.planner.plan

    async def fail(*given: Any, **more: Any) -> int:
        await plan(*given, **more)
        raise OSError("the disk is full")

    events.events.planner = SimpleNamespace(plan=fail)  # type: ignore[assignment]  # what fails of it
    with pytest.raises(OSError, match="full"):
        await events.step()
    events.events.planner = events.started().planner
    (entry,) = planned(events, HONEST)
    gone = publish(events, entry)
    replace_block(events, HONEST)
    for _ in range(3):
        events.chain.head += 1
        await read(events)
    assert registry.orphaned == [gone]


async def test_a_lane_at_a_node_that_still_has_a_block_discards_no_intent_of_the_block_in_its_place(
    events: EventWorld, registry: Registry
) -> None:
    events.sign(1, signer=1, at=HONEST)
    events.sign(2, signer=2, at=BUSY)
    await events.to_head()
    events.log(BUSY, 250)
    await read(events)
    events.log(BUSY, 202)
    await events.others()
    events.log(HONEST)
    events.log(BUSY, 202, block=events.chain.head)
    await events.to_head()
    replace_block(events, HONEST)
    events.chain.head += 1
    await events.to_head()
    gone, _ = await run_in_other_block(events, registry)
    fork_at, events.chain.fork_at = events.chain.fork_at, None
    await events.events.step_others(CHAIN_ID, events.now_ms)
    events.chain.fork_at = fork_at
    assert not await events.events.forks.may_run(gone.due)


@pytest.mark.parametrize("is_restarted", [True, False])
async def test_the_events_of_a_chain_that_was_begun_anew_are_read(
    events: EventWorld, registry: Registry, *, is_restarted: bool
) -> None:
    events.chain.head = 1_000
    events.sign(1, signer=1, at=HONEST)
    await read(events)
    events.chain.head += 1
    await read(events)
    events.chain.begin_anew(20)
    if is_restarted:
        restart(events, registry)
    for _ in range(40):
        events.log(HONEST)
        events.now_s += 60
        with suppress(runs.Incomplete):  # for some minutes the node may lag
            await events.step()
    await events.to_head()
    assert len(planned(events, HONEST)) == 40


async def test_blocks_of_the_time_in_which_nobody_waited_are_not_read(events: EventWorld, registry: Registry) -> None:
    events.settings = {"event_window_max_ms": HOUR_MS}
    restart(events, registry)
    sig = events.sign(1, signer=1, at=HONEST)
    await read(events)
    events.end(sig)
    for _ in range(2):
        events.chain.head += 500_000
        events.now_s += 500_000
        await read(events)
    # As if the chain had just been begun: a relayer that has nothing to do is ready.
    events.sign(2, signer=1, at=HONEST)
    events.asked()
    events.log(HONEST)
    await events.step()
    assert events.events.places()[0].seconds_behind["quiet"] == 0
    await events.to_head()
    assert blocks_asked(events) < 2 * HOUR_MS / 1_000
    assert len(planned(events, HONEST)) == 1


async def test_runs_are_orphaned_also_after_the_last_trigger_of_their_chain_has_ended(
    events: EventWorld, registry: Registry
) -> None:
    sig = events.sign(1, signer=1, at=HONEST)
    await read(events)
    events.log(HONEST)
    await read(events)
    (entry,) = planned(events, HONEST)
    gone = publish(events, entry)
    replace_block(events, HONEST)
    events.end(sig)
    for _ in range(30):
        events.chain.head += 10
        await read(events)
    assert registry.orphaned == [gone]
    events.node.requests.clear()
    events.chain.head += 1
    await read(events)
    assert not events.node.requests


async def test_published_runs_are_looked_at_soon_also_where_much_is_to_be_read_first(
    events: EventWorld, registry: Registry
) -> None:
    events.chain.head = 30_000
    events.sign(1, signer=1, at=HONEST)
    await read(events)
    events.log(HONEST)
    await read(events)
    (entry,) = planned(events, HONEST)
    gone = publish(events, entry)
    replace_block(events, HONEST)
    events.chain.head += 10
    restart(events, registry)

    def limit(method: str, params: Any, result: Any) -> Any:
        if method == "eth_getLogs" and int(params[0]["toBlock"], 16) - int(params[0]["fromBlock"], 16) >= 10:
            return {"error": {"code": -32600, "message": "eth_getLogs requests may have up to a 10 block range"}}
        return result

    events.node.change = limit
    events.sign(2, signer=2, at=9, created_ms=events.now_ms - 7 * HOUR_MS, delta_ms=8 * HOUR_MS)
    while not registry.orphaned:
        assert events.chain.head < 31_000
        events.chain.head += 100
        events.now_s += 100
        for step in (events.events.step, events.events.step_others):
            await step(CHAIN_ID, events.now_ms)
    assert registry.orphaned == [gone]


async def test_a_failure_of_the_second_cursor_is_told_once(
    events: EventWorld, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not registry.orphaned
    events.sign(1, signer=1, at=HONEST)
    await read(events)
    plan, tries = events.events.planner.plan, 0

    async def fail_once(*given: Any, is_new: bool = False) -> int:
        nonlocal tries
        tries += is_new
        if tries == 1 and is_new:
            raise OSError("the disk is full")
        return await plan(*given, is_new=is_new)

    monkeypatch.setattr(events.events, "planner", SimpleNamespace(plan=fail_once, tell=events.events.planner.tell))
    events.chain.head += 30
    events.now_s += 121
    raised = 0
    for _ in range(9):
        events.chain.head += 4
        events.now_s += 4
        await events.to_head()
        try:
            await events.others()
        except OSError:
            raised += 1
    assert (raised, tries) == (1, 2)


async def test_a_block_that_is_replaced_between_the_look_of_a_step_and_its_range_is_seen(
    events: EventWorld, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    events.sign(1, signer=1, at=HONEST)
    await read(events)
    events.log(HONEST)
    await read(events)
    (entry,) = planned(events, HONEST)
    gone = publish(events, entry)
    events.chain.head += 1

    async def replace() -> None:
        events.chain.head -= 1
        replace_block(events, HONEST)
        events.chain.head += 1

    with at_next_range(monkeypatch, replace):
        await events.to_head()
    for _ in range(5):
        events.chain.head += 1
        events.now_s += 1
        await read(events)
    assert registry.orphaned == [gone]
    assert len(planned(events, HONEST)) == 1


async def test_a_node_that_begins_to_synchronize_makes_no_lane_read_the_chain_from_its_start(
    events: EventWorld, registry: Registry
) -> None:
    events.chain.head = 1_000_000
    second = events.add_node(lambda _method, _params, result: result)
    restart(events, registry)
    events.sign(1, signer=1, at=HONEST)
    for _ in range(6):
        events.chain.head += 60
        events.now_s += 60
        await read(events)
    restart(events, registry)
    await read(events)
    second.lag = lambda: events.chain.head
    for _ in range(13):
        events.chain.head += 40
        events.now_s += 40
        for step in (events.events.step, events.events.step_others):
            with suppress(runs.Incomplete):
                await step(CHAIN_ID, events.now_ms)
    second.lag = lambda: 0
    for _ in range(10):
        events.chain.head += 30
        events.now_s += 30
        with suppress(runs.Incomplete):
            await read(events)
    assert blocks_asked(events) < 5_000


async def test_a_head_that_goes_back_and_forth_makes_no_new_lane_read_old_blocks(
    events: EventWorld, registry: Registry
) -> None:
    assert not registry.orphaned
    events.chain.head = 5_000
    events.sign(1, signer=1, at=BUSY)
    await events.to_head()
    events.log(BUSY, 250)
    await events.to_head()
    assert events.lanes()
    events.asked()
    events.node.lag = lambda: 3
    await events.others()
    events.node.lag = lambda: 0
    for _ in range(4):
        events.chain.head += 1
        await read(events)
    assert blocks_asked(events) < 10


async def test_a_lane_that_is_made_to_go_back_while_it_reads_does_go_back(
    events: EventWorld, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not registry.orphaned
    events.sign(1, signer=1, at=BUSY)
    await events.to_head()
    events.log(BUSY, 250)
    await read(events)
    created_ms = events.now_ms
    for _ in range(3):  # so that the lane stays
        events.log(BUSY, 202)
        await events.others()
    assert events.lanes()
    events.log(BUSY, 202)

    async def sign() -> None:
        events.sign(2, signer=2, at=BUSY, created_ms=created_ms)
        await events.step()

    with at_next_range(monkeypatch, sign):
        await events.events.step_others(CHAIN_ID, events.now_ms)
    events.chain.head += 1
    await read(events)
    assert sum(entry.sig == sig_of(2) for entry in planned(events, BUSY)) == 4 * 202


async def test_a_trigger_that_ends_and_returns_has_the_events_between(events: EventWorld, registry: Registry) -> None:
    assert not registry.orphaned
    sig = events.sign(1, signer=1, at=HONEST)
    await read(events)
    events.log(HONEST)
    await read(events)
    tracked = events.tracked[sig]
    events.end(sig)
    for _ in range(5):
        events.log(HONEST)
        await read(events)
    events.tracked[sig] = tracked
    events.events.see(sig)
    events.asked()
    events.log(HONEST)
    await events.to_head()
    assert len(planned(events, HONEST)) == 7
    assert blocks_asked(events) < 10


async def test_a_chain_whose_node_is_gone_fails_no_longer_than_an_hour_after_its_last_trigger_has_ended(
    events: EventWorld, registry: Registry
) -> None:
    assert not registry.orphaned
    sig = events.sign(1, signer=1, at=HONEST)
    await read(events)
    events.end(sig)
    await read(events)
    events.node.change = lambda _method, _params, _result: {"error": {"code": -32000, "message": "out of service"}}
    with pytest.raises(runs.Incomplete):
        await events.step()
    events.chain.later_s += HOUR_MS // 1_000
    assert await events.step()
