"""Events in blocks that left their chain: runs that are orphaned or come back, and intents that are not made twice."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import structlog
from msgspec import UNSET

from muniment.protocol.errors import IntentNotFound, Refusal, RunNotFound
from muniment.protocol.intents.lifecycle import INTENT_MOVES
from muniment.protocol.runs.payloads import EventPayload, read_payload
from muniment.protocol.runs.types import NewRun
from muniment.protocol.triggers.typed_data import EVENT
from muniment.relayer.journal.entries import ORPHANED
from muniment.relayer.runner.pinning import Incomplete

if TYPE_CHECKING:
    from muniment.client import AsyncRegistry
    from muniment.protocol.evm.hex import Bytes32
    from muniment.protocol.runs.types import Run
    from muniment.relayer.journal.entries import Entry
    from muniment.relayer.journal.sqlite import Journal
    from muniment.relayer.runner.pinning import Pins
    from muniment.relayer.schedule.due import Due

# The newest runs with intents of a trigger that are compared with a new event.
_RUNS_COMPARED: Final = 50
# Blocks of a chain that are remembered to be on it.
_KNOWN_MAX: Final = 10_000
# From these on a solver may have sent the intent.
_SUBMITTED: Final = frozenset({"submitted", "succeeded", "failed"})
_DISCARDED: Final = "discarded"

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Forks:
    """What a reorganisation changes for the runs of events."""

    pins: Pins
    registry: AsyncRegistry
    journal: Journal
    # By chain, the hashes of blocks that were on it since its last reorganisation.
    _known: dict[int, dict[bytes, None]] = field(default_factory=dict[int, "dict[bytes, None]"])
    # Those with logs that were read since then: fewer questions, which providers count.
    _read: dict[int, dict[bytes, None]] = field(default_factory=dict[int, "dict[bytes, None]"])

    def forget(self, chain_id: int) -> None:
        """A chain was reorganised: any block may be gone."""
        self._known.pop(chain_id, None)
        self._read.pop(chain_id, None)

    def keep(self, chain_id: int, hashes: Iterable[bytes]) -> None:
        """Remember blocks that were read now."""
        _add(self._read.setdefault(chain_id, {}), hashes)

    async def may_run(self, due: Due) -> bool:
        """Whether the event of a planned run is still on its chain, as far as readers know. Raises `Incomplete`.

        A publication asks for certain: no intent comes of a run that did not have to be made.
        """
        event = event_of(due.payload)
        is_read = self._was_read(event) and not self._has_other(due)
        return is_read or await self.is_canonical(event, due.timestamp_ms)

    def _has_other(self, due: Due) -> bool:
        """Whether the event was in another block too: a run for one that is gone would discard the other's intents."""
        own = self.journal.entry(due.sig, due.kind, due.payload)
        return own is not None and len(self.journal.runs_of_event(due.sig, own.event)) > 1

    def _was_read(self, event: EventPayload) -> bool:
        return event.block_hash.raw in self._read.get(event.chain_id, {})

    async def is_canonical(self, event: EventPayload, at_ms: int) -> bool:
        """Whether the block of an event, whose time is `at_ms`, is on its chain.

        Raises `Incomplete`, also for a chain without nodes.
        """
        if event.chain_id not in self.pins.nodes:
            raise Incomplete("no-answer", f"chain {event.chain_id} has no node here")
        return await self.pins.is_canonical(event.chain_id, event.block_hash.raw, at_ms // 1_000)

    async def _is_kept(self, event: EventPayload, at_ms: int) -> bool:
        """As `is_canonical`, asked once between two reorganisations. Raises `Incomplete`."""
        known = self._known.setdefault(event.chain_id, {})
        if event.block_hash.raw in known:
            return True
        is_canonical = await self.is_canonical(event, at_ms)
        if is_canonical and known is self._known.get(event.chain_id):  # not reorganised meanwhile
            _add(known, [event.block_hash.raw])
        return is_canonical

    async def was_submitted(self, due: Due) -> bool:
        """Whether an intent was submitted that a run made for the same event in another block.

        Intents that wait are discarded: both would be executed. Raises the errors of the client, and `Incomplete`.
        """
        async for run in self._runs_elsewhere(due):
            if await self._was_submitted(output.hash for output in run.outputs):
                return True
        return False

    async def _runs_elsewhere(self, due: Due) -> AsyncIterator[Run]:
        """The runs for the same event in another block: this relayer's own, and those of any relayer.

        Of the others an equal log counts whose block is not on the chain now.
        """
        own = self.journal.entry(due.sig, due.kind, due.payload)
        for other in [] if own is None else self.journal.runs_of_event(due.sig, own.event):
            if other.payload != due.payload and other.hash:
                with suppress(RunNotFound):  # runs with intents stay
                    yield await self.registry.runs.get("0x" + other.hash.hex())
        event, count = event_of(due.payload), 0
        async for run in self.registry.runs.list(trigger_sig=due.sig, result="intents", newest_first=True):
            log = event_of(run.trigger_data.raw)
            is_equal = (log.chain_id, log.contract, log.topics, log.data) == (
                event.chain_id, event.contract, event.topics, event.data
            )  # fmt: skip
            if is_equal and log.block_hash != event.block_hash and not await self._is_kept(log, run.timestamp):
                yield run
            count += 1
            if count >= _RUNS_COMPARED:
                return

    async def _was_submitted(self, hashes: Iterable[Bytes32]) -> bool:
        for hash_ in hashes:
            try:
                intent = await self.registry.intents.get(hash_)
                if intent.status not in _SUBMITTED and _DISCARDED in INTENT_MOVES[intent.status]:
                    intent = await self.registry.intents.move(hash_, _DISCARDED)
            except IntentNotFound:
                continue
            except Refusal:  # it moved meanwhile, or is not this relayer's to move: it may be executed
                return True
            if intent.status in _SUBMITTED:
                return True
        return False

    async def take_back(self, chain_id: int, first_block: int, now_ms: int) -> None:
        """Say of each published run of this chain whose block is gone that it is orphaned; one may have come back.

        Runs of blocks before `first_block` stay as they are. Raises `Incomplete`, and the errors of the client; then
        the next call goes on where this one failed.
        """
        failure: Incomplete | None = None
        for entry in self.journal.published_events(chain_id, first_block):
            event = event_of(entry.payload)
            try:
                # A reader that was wrong sees the reorganisation, and all are looked at again.
                is_read = self._was_read(event) and entry.result != ORPHANED
                is_gone = not (is_read or await self._is_kept(event, entry.timestamp_ms))
            except Incomplete as error:  # of a log on which nodes differed, they may differ for ever
                if entry.result != "missed" or error.code != "nodes-differ":
                    failure = error
                continue
            try:
                if is_gone and entry.result != ORPHANED:
                    await self._orphan(entry, event)
                elif not is_gone and entry.result == ORPHANED:
                    await self._restore(entry, now_ms)
            except Refusal as refusal:
                if not refusal.code:  # the page of a proxy, not by a registry
                    raise
                _log.error("the registry refuses what became of a run", run="0x" + entry.hash.hex(), code=refusal.code)
        if failure is not None:
            raise failure

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


def _add(blocks: dict[bytes, None], hashes: Iterable[bytes]) -> None:
    blocks |= dict.fromkeys(hashes)
    while len(blocks) > _KNOWN_MAX:
        del blocks[next(iter(blocks))]


def event_of(payload: bytes) -> EventPayload:
    """The log in the payload of an event trigger."""
    event = read_payload(EVENT, payload)
    assert isinstance(event, EventPayload)  # noqa: S101 - of this type
    return event
