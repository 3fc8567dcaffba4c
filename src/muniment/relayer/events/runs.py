"""Runs that events make due: found on a chain, planned in the journal, and taken back with a reorganisation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import structlog
from msgspec import UNSET

from muniment.chains.log_reader import LogReader
from muniment.protocol.errors import IntentNotFound, RunNotFound
from muniment.protocol.intents.lifecycle import INTENT_MOVES
from muniment.protocol.runs.payloads import EventPayload, read_payload
from muniment.protocol.runs.types import NewRun
from muniment.protocol.triggers.typed_data import EVENT
from muniment.relayer.events.chain import ChainEvents, Waiting
from muniment.relayer.journal.entries import ORPHANED
from muniment.relayer.runner.pinning import Incomplete
from muniment.relayer.schedule.due import Due, Gap, Occurrence

if TYPE_CHECKING:
    from muniment.chains.catalogue import Chain
    from muniment.client import AsyncRegistry
    from muniment.protocol.evm.signature import Signature
    from muniment.relayer.journal.entries import Entry
    from muniment.relayer.journal.sqlite import Journal
    from muniment.relayer.lives.following import Following, Tracked
    from muniment.relayer.runner.pinning import Pins

# How far back events are looked for, whatever the delta of a trigger: older blocks are an archive's.
_BACK_MS_MAX: Final = 86_400_000
# Where the chains file says nothing: as many as the watcher of settlement contracts waits for.
CONFIRMATIONS: Final = 3
# A reader does not remember the blocks that it read before a restart, so it reads as many again; planned runs stay as
# they are. No chain of the catalogue has taken back 200 blocks.
_REORGANISED_MAX: Final = 200
# From these on a solver may have sent the intent.
_SUBMITTED: Final = frozenset({"submitted", "succeeded", "failed"})
_DISCARDED: Final = "discarded"

_log = structlog.get_logger(__name__)


@dataclass(slots=True, kw_only=True)
class EventRuns:
    """Finds the events that triggers wait for, with one reader of logs for each of `chains`, which have nodes.

    `miss` gets the gap of an event whose time is over.
    """

    chains: Mapping[int, Chain]
    pins: Pins
    registry: AsyncRegistry
    following: Following
    journal: Journal
    own_ms: Callable[[], int]
    miss: Callable[[Gap, int], None] = lambda _gap, _now_ms: None
    _readers: dict[int, ChainEvents] = field(default_factory=dict[int, ChainEvents], init=False)
    # Chains whose published runs are to be looked at: after a reorganisation, and at the start.
    _forked: set[int] = field(default_factory=set[int], init=False)

    async def step(self, chain_id: int, now_ms: int) -> bool:
        """Read a range of a chain and plan the runs that it makes due; whether the head is reached.

        Raises `Incomplete`, and the errors of the client.
        """
        tracked = self._tracked(chain_id)
        if not tracked:
            return True
        events = await self._reader(chain_id, tracked, now_ms)
        if chain_id in self._forked:
            await self._take_back(chain_id, now_ms)
        before = events.reader.next_block
        step = await events.step({sig: Waiting.of(each.trigger.config) for sig, each in tracked.items()})
        if step.gone_back_to is not None:
            _log.warning("reorganisation", chain=chain_id, from_block=step.gone_back_to)
            self._forked.add(chain_id)
        try:
            self._plan([(tracked[sig], occurrence) for sig, occurrence in step.found], now_ms)
        except Exception:  # such as a full disk
            events.reader.go_back_to(step.next_block if before is None else before)
            raise
        if self.journal.fact(_place(chain_id)) != str(step.next_block):
            self.journal.keep_fact(_place(chain_id), str(step.next_block))
        return step.at_head and chain_id not in self._forked

    async def may_run(self, due: Due) -> bool:
        """Whether the event of a planned run is still on its chain. Raises `Incomplete`."""
        return await self.is_canonical(_event(due.payload), due.timestamp_ms)

    async def is_canonical(self, event: EventPayload, at_ms: int) -> bool:
        """Whether the block of an event, whose time is `at_ms`, is on its chain.

        Raises `Incomplete`, also for a chain without nodes.
        """
        if event.chain_id not in self.pins.nodes:
            raise Incomplete("no-answer", f"chain {event.chain_id} has no node here")
        return await self.pins.is_canonical(event.chain_id, event.block_hash.raw, at_ms // 1_000)

    async def was_submitted(self, due: Due) -> bool:
        """Whether an intent was submitted that a run made for the same event in another block.

        Intents that wait are discarded: both would be executed. Raises the errors of the client.
        """
        own = self.journal.entry(due.sig, due.kind, due.payload)
        others = [] if own is None else self.journal.runs_of_event(due.sig, own.event)
        for other in others:
            if other.payload == due.payload or not other.hash:
                continue
            try:
                run = await self.registry.runs.get("0x" + other.hash.hex())
            except RunNotFound:  # runs with intents stay
                continue
            for output in run.outputs:
                try:
                    intent = await self.registry.intents.get(output.hash)
                except IntentNotFound:
                    continue
                if intent.status not in _SUBMITTED and _DISCARDED in INTENT_MOVES[intent.status]:
                    intent = await self.registry.intents.move(output.hash, _DISCARDED)
                if intent.status in _SUBMITTED:
                    return True
        return False

    def _tracked(self, chain_id: int) -> dict[Signature, Tracked]:
        return {
            sig: each
            for sig, each in self.following.tracked.items()
            if each.plan.kind == EVENT and int(each.trigger.config["chainId"]) == chain_id
        }

    async def _reader(self, chain_id: int, tracked: Mapping[Signature, Tracked], now_ms: int) -> ChainEvents:
        """The reader of a chain, which goes back for triggers that it has not read for. Raises `Incomplete`."""
        new = {sig: each for sig, each in tracked.items() if self.journal.fact(_begun(sig)) is None}
        events = self._readers.get(chain_id)
        if events is None:
            kept = self.journal.fact(_place(chain_id))
            oldest = await self._block_at(chain_id, now_ms - _BACK_MS_MAX) if kept is not None else 0
            chain = self.chains[chain_id]
            reader = LogReader(
                nodes=self.pins.nodes[chain_id],
                confirmations=CONFIRMATIONS if chain.confirmations is None else chain.confirmations,
                now_ms=self.own_ms,
                next_block=None if kept is None else max(int(kept) - _REORGANISED_MAX, oldest),
            )
            events = self._readers[chain_id] = ChainEvents(reader)
            self._forked.add(chain_id)
        if new:
            first_ms = min(_first_ms(each, now_ms) for each in new.values())
            block = await self._block_at(chain_id, first_ms)
            if events.reader.next_block is None:
                events.reader.next_block = block
            else:
                events.reader.go_back_to(block)
            # First: a relayer that ends here reads from there after its restart.
            self.journal.keep_fact(_place(chain_id), str(events.reader.next_block))
            for sig in new:
                self.journal.keep_fact(_begun(sig), str(block))
        return events

    async def _block_at(self, chain_id: int, at_ms: int) -> int:
        """The first block that is not before a time."""
        return await self.pins.block_after(chain_id, max(0, at_ms // 1_000 - 1))

    def _plan(self, found: list[tuple[Tracked, Occurrence]], now_ms: int) -> None:
        """Plan the runs that are new and can still be made; the others are missed."""
        dues: list[Due] = []
        for tracked, occurrence in found:
            plan, at_ms = tracked.plan, 1_000 * occurrence.block_time_s
            due = plan.of_event(occurrence)
            if at_ms <= plan.created_ms or 0 < plan.end_ms < at_ms:
                continue
            if self.journal.entry(due.sig, due.kind, due.payload) is not None:
                continue
            if now_ms <= due.until_ms:
                dues.append(due)
                continue
            known = self.journal.known(plan.sig)
            if known is not None and known.seen.since_ms <= at_ms:
                self.miss(Gap(plan.sig, EVENT, due.payload, 1, at_ms, at_ms), now_ms)
        if dues:
            self.journal.plan(dues, now_ms)

    async def _take_back(self, chain_id: int, now_ms: int) -> None:
        """Say of each published run of this chain whose block is gone that it is orphaned; one may have come back."""
        for entry in self.journal.published_events(now_ms - _BACK_MS_MAX):
            event = _event(entry.payload)
            if event.chain_id != chain_id:
                continue
            is_gone = not await self.is_canonical(event, entry.timestamp_ms)
            if is_gone and entry.result != ORPHANED:
                await self._orphan(entry, event)
            elif not is_gone and entry.result == ORPHANED:
                await self._restore(entry, now_ms)
        self._forked.discard(chain_id)

    async def _orphan(self, entry: Entry, event: EventPayload) -> None:
        hash_ = "0x" + entry.hash.hex()
        # A note that a verdict of another relayer has replaced is not there any more.
        with suppress(RunNotFound):
            await self.registry.runs.orphan(hash_, event.chain_id, event.block_hash)
        self.journal.mark(entry, ORPHANED)
        _log.warning("the block of a run is gone", trigger=entry.sig, run=hash_, chain=event.chain_id)

    async def _restore(self, entry: Entry, now_ms: int) -> None:
        """Record a run again whose block came back; one whose intents were withheld is made again, if it still may.

        Intents that were discarded for those of the same event in another block stay so: those may be submitted by now.
        """
        try:
            run = await self.registry.runs.get("0x" + entry.hash.hex())
        except RunNotFound:  # as above
            return
        _log.warning("the block of a run is back", trigger=entry.sig, run=run.hash)
        if run.outputs and not any(each.recorded for each in run.outputs) and now_ms <= entry.until_ms:
            self.journal.plan_again(entry)
            return
        # The signature is that of the relayer which recorded the run first.
        names = [name for name in NewRun.__struct_fields__ if name != "signature"]
        given = {name: value for name in names if (value := getattr(run, name, UNSET)) is not UNSET}
        await self.registry.runs.record(NewRun(**given))
        self.journal.mark(entry, run.result)


def _first_ms(tracked: Tracked, now_ms: int) -> int:
    """From when on events of a trigger count."""
    return max(tracked.plan.created_ms, now_ms - min(tracked.plan.delta_ms, _BACK_MS_MAX))


def _event(payload: bytes) -> EventPayload:
    event = read_payload(EVENT, payload)
    assert isinstance(event, EventPayload)  # noqa: S101 - of this type
    return event


def _place(chain_id: int) -> str:
    """The name of the next block to read of a chain."""
    return f"next block of chain {chain_id}"


def _begun(sig: Signature) -> str:
    """The name of the block from which on events of a trigger were read."""
    return f"first block for {sig}"
