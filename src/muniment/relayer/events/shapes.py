"""What triggers of one chain wait for: found for a log by contract and first topic, and asked in few requests. Pure.

Triggers with an equal *shape* share a request with the union of their values. It may bring logs that none of them waits
for: a trigger takes only what matches its own topics.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple

from muniment.chains.logs import LogFilter
from muniment.protocol.evm.address import Address
from muniment.protocol.evm.hex import Bytes32
from muniment.relayer.schedule.due import matches

if TYPE_CHECKING:
    from muniment.chains.log_reader import SeenLog
    from muniment.protocol.evm.signature import Signature
    from muniment.protocol.runs.payloads import EventPayload


class Shape(NamedTuple):
    """A contract, a first topic, None for any, and the further positions of topics with values that are asked for."""

    contract: Address
    topic: Bytes32 | None
    positions: tuple[int, ...]

    @property
    def name(self) -> str:
        """A short name, the same after a restart."""
        topic = b"" if self.topic is None else self.topic.raw
        return sha256(self.contract.raw + bytes(self.positions) + topic).hexdigest()[:16]


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

    def shapes(self) -> Iterator[Shape]:
        """Its shapes: one for each first topic."""
        positions = tuple(place for place, choices in enumerate(self.topics) if place and choices)
        for topic in (self.topics[0] if self.topics else ()) or (None,):
            yield Shape(self.contract, topic, positions)


@dataclass(slots=True)
class Interests:
    """The triggers of one chain, by what they wait for."""

    waiting: dict[Signature, Waiting] = field(default_factory=dict["Signature", Waiting], init=False)
    shapes: dict[Shape, dict[Signature, None]] = field(default_factory=dict[Shape, "dict[Signature, None]"], init=False)
    _by_topic: defaultdict[tuple[Address, Bytes32 | None], set[Shape]] = field(
        default_factory=lambda: defaultdict[tuple[Address, "Bytes32 | None"], set[Shape]](set), init=False
    )
    # How often triggers came or went.
    changes: int = field(default=0, init=False)
    # The triggers of a shape by the values at its first position, None for a shape without any.
    _by_value: defaultdict[tuple[Shape, Bytes32 | None], dict[Signature, None]] = field(
        default_factory=lambda: defaultdict[tuple[Shape, "Bytes32 | None"], "dict[Signature, None]"](dict), init=False
    )

    def add(self, sig: Signature, waiting: Waiting) -> None:
        """A trigger waits from now on."""
        self.remove(sig)
        self.changes += 1
        self.waiting[sig] = waiting
        for shape in waiting.shapes():
            self.shapes.setdefault(shape, {})[sig] = None
            for value in _first_values(shape, waiting):
                self._by_value[shape, value][sig] = None
            self._by_topic[shape.contract, shape.topic].add(shape)

    def remove(self, sig: Signature) -> None:
        """A trigger waits no more."""
        waiting = self.waiting.pop(sig, None)
        if waiting is None:
            return
        self.changes += 1
        for shape in waiting.shapes():
            self.shapes[shape].pop(sig)
            for value in _first_values(shape, waiting):
                self._by_value[shape, value].pop(sig, None)
                if not self._by_value[shape, value]:
                    del self._by_value[shape, value]
            if not self.shapes[shape]:
                del self.shapes[shape]
                self._by_topic[shape.contract, shape.topic].discard(shape)

    def shapes_of(self, log: SeenLog) -> Iterator[Shape]:
        """The shapes with the contract and the first topic of a log."""
        topic = log.topics[0] if log.topics else None
        for each in dict.fromkeys((topic, None)):
            yield from self._by_topic.get((log.contract, each), ())

    def takers(self, log: SeenLog, shapes: Collection[Shape]) -> Iterator[Signature]:
        """The triggers of these shapes that wait for a log, one of several first topics maybe twice."""
        for shape in self.shapes_of(log):
            place = shape.positions[0] if shape.positions else len(log.topics)
            value = log.topics[place] if place < len(log.topics) else None
            if shape in shapes:
                yield from (sig for sig in self._by_value.get((shape, value), ()) if self.waiting[sig].takes(log))

    def filters(self, shapes: Collection[Shape], alone: Collection[Shape] = ()) -> dict[LogFilter, list[Shape]]:
        """What to ask for these shapes, but for those `alone` together where that brings nothing else.

        First topics of a contract share a request, and then contracts with the same topics.
        """
        of_contract = dict[tuple[object, ...], list[Shape]]()
        for shape in shapes:
            tail = self.values(shape)[1:]
            key = (shape.contract, shape.topic is None, *map(frozenset, tail), shape if shape in alone else None)
            of_contract.setdefault(key, []).append(shape)
        shared = dict[tuple[object, ...], list[list[Shape]]]()
        for key, those in of_contract.items():
            shared.setdefault((frozenset(each.topic for each in those), *key[1:]), []).append(those)
        return {self._filter([group[0].contract for group in groups], groups[0]): [
            shape for group in groups for shape in group
        ] for groups in shared.values()}  # fmt: skip

    def _filter(self, contracts: Sequence[Address], shapes: Sequence[Shape]) -> LogFilter:
        first = tuple(shape.topic for shape in shapes if shape.topic is not None)
        topics = (first, *self.values(shapes[0])[1:])
        return LogFilter(tuple(contracts), topics if any(topics) else ())

    def values(self, shape: Shape) -> tuple[tuple[Bytes32, ...], ...]:
        """The union of the values that triggers of a shape wait for, at each place of the topics."""
        places = [() if shape.topic is None else (shape.topic,)]
        for place in range(1, max(shape.positions, default=0) + 1):
            choices = (self.waiting[sig].topics[place] for sig in self.shapes[shape])
            places.append(tuple(dict.fromkeys(each for those in choices for each in those)))
        return tuple(places) if any(places) else ()


def _first_values(shape: Shape, waiting: Waiting) -> Iterable[Bytes32 | None]:
    return dict.fromkeys(waiting.topics[shape.positions[0]]) if shape.positions else (None,)
