"""The events that triggers of one chain wait for, as the chain makes them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from muniment.outgoing import Unreachable
from muniment.protocol.runs.payloads import EventPayload
from muniment.relayer.events.shapes import Interests, Shape
from muniment.relayer.runner.pinning import Incomplete
from muniment.relayer.schedule.due import Occurrence

if TYPE_CHECKING:
    from muniment.chains.log_reader import LogReader, SeenLog
    from muniment.chains.logs import LogFilter
    from muniment.protocol.evm.hex import Bytes32

# A shape with more logs in a step is read apart from the others.
LOGS_OF_SHAPE_MAX: Final = 200
# Of more requests than these that a node refused, none is to blame alone; the range is halved anyway.
_TO_BLAME_MAX: Final = 3
# How long shapes are asked for one by one: each is a request of its own.
_ALONE_S: Final = 60.0


class EventsStep(NamedTuple):
    """What a step read: logs, in the order of the chain.

    `next_block` is the next block to read. `gone_back_to` is the first block of a fork: blocks from there on were read
    that are not canonical now. `at_head`: no block is left to read now. `crowded` are shapes with more logs than others
    should wait for, and `excess` logs of a range that was too large, which is read again. On the logs of `given_up`
    nodes differ.
    """

    logs: tuple[SeenLog, ...]
    next_block: int
    gone_back_to: int | None
    at_head: bool
    crowded: tuple[Shape, ...] = ()
    excess: tuple[SeenLog, ...] = ()
    given_up: tuple[SeenLog, ...] = ()


@dataclass(slots=True)
class ChainEvents:
    """Reads the events of one chain for the triggers of some shapes, with one reader of logs."""

    reader: LogReader
    # Shapes of a request with several contracts that nodes refused: which of them is to blame shows when each is alone.
    _alone: set[Shape] = field(default_factory=set[Shape], init=False)
    _alone_until_s: float = field(default=0.0, init=False)
    # What nodes refused in the last step: an error that is no refusal comes once.
    _refused: frozenset[LogFilter] = field(default=frozenset(), init=False)
    # What was asked last, as long as neither the triggers nor the shapes change.
    _asked: tuple[object, dict[LogFilter, list[Shape]]] | None = field(default=None, init=False)

    async def step(self, interests: Interests, shapes: Collection[Shape]) -> EventsStep:
        """Read the next range of blocks. Raises `Incomplete` when too few nodes answer; they rest until a later try."""
        chain_id, now_s = self.reader.nodes.chain.id, self.reader.nodes.now_s()
        if now_s >= self._alone_until_s:
            self._alone.clear()
        filters = self._filters(interests, shapes)
        try:
            step = await self.reader.step([*filters])
        except Unreachable as error:
            text = f"too few nodes of chain {chain_id} answer for a range ({error.reason}: {error})"
            raise Incomplete("no-answer", text) from None
        crowded = dict.fromkeys(_crowded(interests, shapes, (*step.logs, *step.excess)))
        again = [each for each in step.refused if each in self._refused]
        self._refused = frozenset(step.refused)
        for refused in again if len(again) <= _TO_BLAME_MAX else ():
            those = filters.get(refused, [])
            if len(those) > 1:
                self._alone.update(those)
                self._alone_until_s = now_s + _ALONE_S
            else:
                crowded.update(dict.fromkeys(those))
                self._alone.clear()
        return EventsStep(
            step.logs, step.next_block, step.gone_back_to, step.at_head, tuple(crowded), step.excess, step.disputed_out
        )

    def _filters(self, interests: Interests, shapes: Collection[Shape]) -> dict[LogFilter, list[Shape]]:
        state = (interests.changes, tuple(shapes), len(self._alone))
        if self._asked is None or self._asked[0] != state:
            self._asked = state, interests.filters(shapes, self._alone)
        return self._asked[1]


def occurrence_of(chain_id: int, log: SeenLog) -> Occurrence:
    """A log as an event of its chain."""
    payload = EventPayload(chain_id, log.block_hash, log.index, log.contract, log.topics, log.data)
    return Occurrence(payload, log.block_number, log.block_time_s, log.transaction_hash, log.ordinal)


def _crowded(interests: Interests, shapes: Collection[Shape], logs: Collection[SeenLog]) -> list[Shape]:
    """The shapes with too many logs, whether or not a trigger waits for each."""
    if len(logs) <= LOGS_OF_SHAPE_MAX:
        return []
    values, counts = dict[Shape, "list[set[Bytes32]]"](), Counter[Shape]()
    for log in logs:
        for shape in interests.shapes_of(log):
            if shape not in shapes:
                continue
            if shape not in values:
                values[shape] = [set(each) for each in interests.values(shape)]
            counts[shape] += len(log.topics) >= len(values[shape]) and all(
                not those or topic in those for topic, those in zip(log.topics, values[shape], strict=False)
            )
    return [shape for shape, count in counts.items() if count > LOGS_OF_SHAPE_MAX]
