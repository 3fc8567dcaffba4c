"""Runs that events make due: read from chains in lanes, and planned in the journal."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import structlog

from muniment.chains.disputes import Disputes
from muniment.chains.log_reader import LogReader
from muniment.chains.nodes import Heads
from muniment.protocol.triggers.typed_data import EVENT
from muniment.relayer.events.allowance import Allowance
from muniment.relayer.events.chain import ChainEvents, occurrence_of
from muniment.relayer.events.forks import Forks
from muniment.relayer.events.lanes import LATE, REORGANISED_MAX, ChainPlace, Lane, Lanes
from muniment.relayer.events.planning import EventPlanner
from muniment.relayer.events.shapes import Waiting
from muniment.relayer.lives.following import FAILURES
from muniment.relayer.runner.pinning import Incomplete

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

    from muniment.chains.catalogue import Chain
    from muniment.chains.log_reader import SeenLog
    from muniment.client import AsyncRegistry
    from muniment.protocol.evm.address import Address
    from muniment.protocol.evm.signature import Signature
    from muniment.protocol.runs.payloads import EventPayload
    from muniment.relayer.events.chain import EventsStep
    from muniment.relayer.events.planning import Found
    from muniment.relayer.events.shapes import Shape
    from muniment.relayer.figures import Figures
    from muniment.relayer.journal.sqlite import Journal
    from muniment.relayer.lives.following import Following, Tracked
    from muniment.relayer.runner.pinning import Pins
    from muniment.relayer.settings import RelayerSettings

# Where the chains file says nothing: as many as the watcher of settlement contracts waits for.
CONFIRMATIONS: Final = 3
# A node may know a block before it knows its logs: a second reader asks for them so much later.
_LATE_BLOCKS: Final = 128
_LATE_SECONDS: Final = 120.0
# That it reads so rarely costs no event, and calls of nodes are counted.
_LATE_EACH_MS: Final = 30_000
# So long after a start, published runs are looked at only once their blocks were read again.
_START_MS: Final = 300_000
# Before the block of a fact, see `_begun`: events of a trigger were read up to there, when it ended.
_UNTIL: Final = "until "
# How long a step waits for lanes that read on.
_OTHERS_S: Final = 4.0

_log = structlog.get_logger(__name__)


@dataclass(slots=True, kw_only=True)
class EventRuns:
    """Finds the events that triggers wait for on `chains`, which have nodes."""

    chains: Mapping[int, Chain]
    pins: Pins
    registry: AsyncRegistry
    following: Following
    journal: Journal
    settings: RelayerSettings
    figures: Figures
    own_ms: Callable[[], int]
    forks: Forks = field(init=False)
    planner: EventPlanner = field(init=False)
    _allowance: Allowance = field(init=False)
    _lanes: dict[int, Lanes] = field(default_factory=dict[int, Lanes], init=False)
    # Chains whose published runs are to be looked at, after a reorganisation and at the start, and up to which block.
    _forked: dict[int, int] = field(default_factory=dict[int, int], init=False)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set["asyncio.Task[None]"], init=False)
    _now_ms: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        """Begin without readers."""
        self.forks = Forks(pins=self.pins, registry=self.registry, journal=self.journal)
        self._allowance = Allowance(self.settings.event_triggers_per_signer_max)
        self.planner = EventPlanner(journal=self.journal, settings=self.settings)

    def places(self) -> list[ChainPlace]:
        """How far each chain with triggers was read."""
        return [lanes.place(self.own_ms()) for lanes in self._lanes.values() if lanes.interests.waiting]

    def see(self, sig: Signature) -> None:
        """A trigger appeared, ended or returned."""
        tracked = self.following.tracked.get(sig)
        chain_id = None if tracked is None or tracked.plan.kind != EVENT else int(tracked.trigger.config["chainId"])
        if tracked is not None and chain_id is not None and chain_id in self.chains:
            over = self._allowance.add(tracked.trigger.signer, sig, tracked.plan.created_ms)
            if over != sig:
                self._lanes_of(chain_id).add(sig, Waiting.of(tracked.trigger.config))
            if over is not None:
                self._remove(over)
            return
        self._remove(sig)
        if (freed := self._allowance.remove(sig)) is not None:
            # From now on: to read the past for it, everybody's events would have to wait.
            self.journal.keep_fact(_begun(freed), "now")
            self.see(freed)

    def _remove(self, sig: Signature) -> None:
        for lanes in self._lanes.values():
            if sig in lanes.interests.waiting:
                if (block := lanes.next_block_of(sig)) is not None:
                    self.journal.keep_fact(_begun(sig), f"{_UNTIL}{block}")
                lanes.remove(sig)

    async def step(self, chain_id: int, now_ms: int) -> bool:
        """Read a range of a chain, for all triggers but those of busy contracts; whether the head is reached.

        Raises `Incomplete`, and the errors of the client.
        """
        lanes = self._lanes_of(chain_id)
        if not lanes.is_read(self.own_ms()):
            return True
        if lanes.interests.waiting:
            await self._begin(lanes, now_ms)
        await self._step(lanes, lanes.quiet, now_ms)
        return lanes.quiet.at_head

    async def step_others(self, chain_id: int, now_ms: int) -> bool:
        """Let each other lane, and the second cursor, read on by itself; whether all have reached the head.

        Beside them comes what a reorganisation changes for published runs. Returns after some seconds at the latest:
        those that are slow hold up no other. Raises `Incomplete`, and the errors of the client, when none reads on.
        """
        lanes = self._lanes_of(chain_id)
        if not lanes.is_begun:
            return True
        lanes.forget_gone(now_ms)
        self._now_ms = now_ms
        tasks: dict[asyncio.Task[None], Lane] = {}
        for lane in lanes.others:
            since_ms = self.own_ms() - (lane.at_head_ms or 0)
            is_early = lane is lanes.late and lane.at_head and 0 <= since_ms < _LATE_EACH_MS
            if lane.task is None or (lane.task.done() and not is_early):
                lane.task = asyncio.create_task(self._read_on(lanes, lane))
            tasks[lane.task] = lane
        self._tasks = {each for each in self._tasks if not each.done()} | tasks.keys()
        failures = list[Exception]()
        try:
            await self._take_back(lanes, now_ms)
        except (Incomplete, *FAILURES) as error:
            failures.append(error)
        done, waiting = await asyncio.wait(tasks, timeout=_OTHERS_S)
        failures += [error for each in done if isinstance(error := each.exception(), Exception)]
        if failures and not waiting:
            raise failures[0]
        for error in failures:
            self.figures.fail("incomplete", "a lane cannot be read now", error, chain=chain_id)
        return not waiting and not failures

    async def close(self) -> None:
        """End what reads on."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def is_canonical(self, event: EventPayload, at_ms: int) -> bool:
        """See `Forks`."""
        return await self.forks.is_canonical(event, at_ms)

    async def _take_back(self, lanes: Lanes, now_ms: int) -> None:
        chain_id, quiet = lanes.chain_id, lanes.quiet
        block = self._forked.get(chain_id)
        # At the start the quiet lane reads those blocks again: then few are left to ask for.
        is_start = 0 <= self.own_ms() - lanes.began_ms < _START_MS
        if block is None or (is_start and not quiet.at_head and (quiet.events.reader.next_block or 0) < block):
            return
        del self._forked[chain_id]  # another reorganisation may come meanwhile
        try:
            await self.forks.take_back(chain_id, block - REORGANISED_MAX, now_ms)
        except BaseException:
            self._look_at_runs(chain_id, block)
            raise

    def _look_at_runs(self, chain_id: int, block: int) -> None:
        self._forked[chain_id] = min(block, self._forked.get(chain_id, block))

    async def _read_on(self, lanes: Lanes, lane: Lane) -> None:
        """Read a lane up to the head."""
        lane.at_head = False
        while not lane.at_head and lane in lanes.others:
            await self._step(lanes, lane, self._now_ms)

    async def _step(self, lanes: Lanes, lane: Lane, now_ms: int) -> None:
        reader, shapes = lane.events.reader, lanes.shapes(lane)
        before = reader.next_block
        step = await lane.events.step(lanes.interests, shapes)
        lane.at_head = step.at_head
        if step.at_head:
            lane.at_head_ms = self.own_ms()
        if step.gone_back_to is not None:
            _log.warning("reorganisation", chain=lanes.chain_id, from_block=step.gone_back_to)
            self._look_at_runs(lanes.chain_id, step.next_block)
            self.forks.forget(lanes.chain_id)
        if lane is lanes.quiet:  # busy ones are read again apart: nobody waits for them here
            shapes = {each: None for each in shapes if each not in step.crowded}
        self.forks.keep(lanes.chain_id, (log.block_hash.raw for log in step.logs))
        try:
            count = await self.planner.plan(self._found(lanes, shapes, step.logs), now_ms, is_new=lane is lanes.late)
            await self._sort(lanes, lane, step, now_ms)
        except Exception:  # such as a full disk
            lane.at_head = False
            reader.go_back_to(step.next_block if before is None else before)
            raise
        # A dispute may end in a step of another lane than the one that began it.
        given_up = self._found(lanes, lanes.interests.shapes, step.given_up)
        await self.planner.tell(given_up, "nodes-differ", "nodes did not agree that the event happened", now_ms)
        # A new trigger may have made it go back meanwhile.
        next_block = min(step.next_block, reader.next_block or 0)
        if lane is lanes.late:
            self.figures.add("late_events_total", count=count)
            self.journal.forget_events(lanes.chain_id, next_block)
        lanes.keep_place(lane, next_block)

    async def _sort(self, lanes: Lanes, lane: Lane, step: EventsStep, now_ms: int) -> None:
        """Move shapes between lanes, by what they brought."""
        if lane is lanes.quiet:
            first = min([step.next_block, *(log.block_number for log in step.logs)])
            refused = lanes.move(step.crowded, first, now_ms)
            text = "its contract has more events than this operator reads for the signer"
            of_refused = self._found(lanes, refused, (*step.logs, *step.excess) if refused else ())
            await self.planner.tell(of_refused, "too-busy", text, now_ms)
        elif lane is not lanes.late and lane.at_head and not step.crowded:
            for shape in lanes.shapes(lane):
                lanes.calm(shape, lane.events.reader.next_block or 0)

    def _found(self, lanes: Lanes, shapes: Collection[Shape], logs: Iterable[SeenLog]) -> Iterator[Found]:
        """Each log as an event, with the triggers that wait for it and have not ended meanwhile."""
        tracked = self.following.tracked
        for log in logs:
            sigs = dict.fromkeys(lanes.interests.takers(log, shapes))
            yield occurrence_of(lanes.chain_id, log), [tracked[sig] for sig in sigs if sig in tracked]

    def _lanes_of(self, chain_id: int) -> Lanes:
        lanes = self._lanes.get(chain_id)
        if lanes is not None:
            return lanes
        chain, nodes = self.chains[chain_id], self.pins.nodes[chain_id]
        disputes = Disputes(nodes=nodes, now_ms=self.own_ms, age_ms_max=self.settings.event_window_max_ms)
        heads = Heads(nodes=nodes, now_ms=self.own_ms)

        def started(name: str, block: int | None) -> Lane:
            is_late = name == LATE
            reader = LogReader(
                nodes=nodes, confirmations=CONFIRMATIONS if chain.confirmations is None else chain.confirmations,
                now_ms=self.own_ms, next_block=block, lag_blocks=_LATE_BLOCKS if is_late else 0,
                lag_seconds=_LATE_SECONDS if is_late else 0.0, disputes=disputes, heads=heads,
            )  # fmt: skip
            return Lane(name=name, events=ChainEvents(reader))

        lanes = self._lanes[chain_id] = Lanes(
            chain_id=chain_id, journal=self.journal, signers_of=self._signers_of(chain_id), started=started,
            disputes=disputes, began_ms=self.own_ms(),
        )  # fmt: skip
        self._look_at_runs(chain_id, lanes.quiet.events.reader.next_block or 0)
        for sig in self.following.tracked:
            self.see(sig)
        return lanes

    def _signers_of(self, chain_id: int) -> Callable[[Shape], list[Address]]:
        def of(shape: Shape) -> list[Address]:
            sigs = self._lanes[chain_id].interests.shapes.get(shape, ())
            signers = (self.following.signer_of(each) for each in sigs)
            return list(dict.fromkeys(each for each in signers if each is not None))

        return of

    async def _begin(self, lanes: Lanes, now_ms: int) -> None:
        """Go back for triggers that were not read for. Raises `Incomplete`."""
        if not lanes.is_begun:
            since_ms = now_ms - self.settings.event_window_max_ms
            oldest = await self._block_at(lanes.chain_id, since_ms) if lanes.has_places else 0
            lanes.begin(oldest, self.own_ms())
        seen = [*lanes.new]
        new: dict[Signature, Tracked] = {}
        # The block up to which events of a trigger that returns were read; 0: none were.
        until: dict[Signature, int] = {}
        for sig in seen:
            tracked, fact = self.following.tracked.get(sig), self.journal.fact(_begun(sig))
            if tracked is not None and (fact is None or fact.startswith(_UNTIL)):
                new[sig], until[sig] = tracked, 0 if fact is None else int(fact.removeprefix(_UNTIL))
        if new:
            first_ms = min(self._first_ms(tracked, now_ms) for tracked in new.values())
            block = max(await self._block_at(lanes.chain_id, first_ms), min(until.values()))
            # First: a relayer that ends here reads from there after its restart.
            for lane in {lane.name: lane for sig in new for lane in lanes.lanes_of(sig)}.values():
                lanes.go_back(lane, block)
            self.journal.keep_facts({_begun(sig): str(block) for sig in new})
        lanes.new.difference_update(seen)

    def _first_ms(self, tracked: Tracked, now_ms: int) -> int:
        """From when on events of a trigger count."""
        return max(tracked.plan.created_ms, now_ms - self.planner.delta_ms(tracked))

    async def _block_at(self, chain_id: int, at_ms: int) -> int:
        """The first block that is not before a time."""
        return await self.pins.block_after(chain_id, max(0, at_ms // 1_000 - 1))


def _begun(sig: Signature) -> str:
    """The name of the block from which on events of a trigger were read."""
    return f"first block for {sig}"
