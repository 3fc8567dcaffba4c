"""The events that triggers of one chain wait for, as the chain makes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import structlog

from muniment.chains.log_reader import LogReader, SeenLog
from muniment.chains.logs import LogFilter
from muniment.outgoing import Unreachable
from muniment.protocol.evm.address import Address
from muniment.protocol.evm.hex import Bytes32
from muniment.protocol.runs.payloads import EventPayload
from muniment.relayer.runner.pinning import Incomplete
from muniment.relayer.schedule.due import Occurrence, matches

if TYPE_CHECKING:
    from muniment.protocol.evm.signature import Signature

_log = structlog.get_logger(__name__)


class EventsStep(NamedTuple):
    """What a step found: occurrences with the triggers that wait for them, in the order of the chain.

    `next_block` is the next block to read. `gone_back_to` is the first block of a fork: blocks from there on were read
    that are not canonical now. `at_head`: no block is left to read now.
    """

    found: tuple[tuple[Signature, Occurrence], ...]
    next_block: int
    gone_back_to: int | None
    at_head: bool


@dataclass(frozen=True, slots=True)
class Waiting:
    """What a trigger waits for: logs of a contract with one of the choices at each place of the topics."""

    contract: Address
    topics: tuple[tuple[Bytes32, ...], ...]

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Waiting:
        """The config of an event trigger, which the registry and this relayer have checked."""
        topics = tuple(tuple(Bytes32.parse(each) for each in choices) for choices in config["topics"])
        return cls(Address.parse(config["contract"]), topics)

    def takes(self, log: EventPayload | SeenLog) -> bool:
        """Whether the trigger waits for a log of its chain."""
        return log.contract == self.contract and matches(log.topics, self.topics)


@dataclass(slots=True)
class ChainEvents:
    """Reads the events of one chain for its triggers, with one reader of logs, and a second one that comes later."""

    reader: LogReader
    _second: LogReader | None = field(default=None, init=False)

    async def step(self, wanted: Mapping[Signature, Waiting]) -> EventsStep:
        """Read the next range of blocks. Raises `Incomplete` when too few nodes answer; they rest until a later try."""
        nodes, filters = self.reader.nodes, _filters(wanted)
        later = await self._later_logs(filters)
        try:
            step = await self.reader.step(filters)
        except Unreachable as error:
            text = f"too few nodes of chain {nodes.chain.id} answer for a range ({error.reason}: {error})"
            raise Incomplete("no-answer", text) from None
        chain_id = nodes.chain.id
        found = [
            (sig, _occurrence(chain_id, log))
            for log in (*step.logs, *later)
            for sig, waiting in wanted.items()
            if waiting.takes(log)
        ]
        return EventsStep(tuple(found), step.next_block, step.gone_back_to, step.at_head)

    async def _later_logs(self, filters: Sequence[LogFilter]) -> tuple[SeenLog, ...]:
        """What the second reader finds, most of which is known. Its failures stop nothing."""
        if self.reader.next_block is None:
            return ()
        if self._second is None:
            self._second = self.reader.second()
        if self.reader.next_block < (self._second.next_block or 0):  # a new trigger waits for older events
            self._second.go_back_to(self.reader.next_block)
        try:
            return (await self._second.step(filters)).logs
        except Unreachable:
            return ()


def _filters(wanted: Mapping[Signature, Waiting]) -> list[LogFilter]:
    """As few requests as there are different topics: contracts with the same topics share one."""
    contracts: dict[tuple[tuple[Bytes32, ...], ...], dict[Address, None]] = {}
    for waiting in wanted.values():
        contracts.setdefault(waiting.topics, {})[waiting.contract] = None
    return [LogFilter(tuple(each), topics) for topics, each in contracts.items()]


def _occurrence(chain_id: int, log: SeenLog) -> Occurrence:
    payload = EventPayload(chain_id, log.block_hash, log.index, log.contract, log.topics, log.data)
    return Occurrence(payload, log.block_number, log.block_time_s, log.transaction_hash, log.ordinal)
