"""The lanes of one chain: most shapes are read together, a busy one alone; each has its own place in the journal."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

import structlog

from muniment.relayer.events.shapes import Interests

if TYPE_CHECKING:
    from muniment.chains.disputes import Disputes
    from muniment.protocol.evm.address import Address
    from muniment.protocol.evm.signature import Signature
    from muniment.relayer.events.chain import ChainEvents
    from muniment.relayer.events.shapes import Shape, Waiting
    from muniment.relayer.figures import Figures
    from muniment.relayer.journal.sqlite import Journal

QUIET: Final = "quiet"
LATE: Final = "late"
# A reader does not remember the blocks that it read before a restart, so it reads as many again; planned runs stay as
# they are. No chain of the catalogue has taken back 200 blocks.
REORGANISED_MAX: Final = 200
# Lanes of busy shapes of a chain, and of one signer.
_LANES_MAX: Final = 15
_LANES_OF_SIGNER_MAX: Final = 3
# A busy shape for which there was no lane is tried again after so long.
_TRIED_AGAIN_MS: Final = 3_600_000
# After the last trigger of a chain has ended, its nodes may be gone for ever.
_READ_ON_MS: Final = 3_600_000

_log = structlog.get_logger(__name__)


class ChainPlace(NamedTuple):
    """How far a chain was read: `next_block` and the seconds since nothing was left to read, of each lane."""

    chain_id: int
    head_block: int | None
    next_block: dict[str, int]
    seconds_behind: dict[str, float]
    disputed_logs: int
    too_busy: int
    node_failures: Counter[str]


def show_places(figures: Figures, places: Iterable[ChainPlace]) -> None:
    """Show how far each chain was read in the metrics."""
    of = {str(each.chain_id): each for each in places}
    figures.show_each("head_block", {(chain,): each.head_block or 0 for chain, each in of.items()})
    figures.show_each("disputed_logs", {(chain,): each.disputed_logs for chain, each in of.items()})
    figures.show_each("busy_contracts", {(chain,): each.too_busy for chain, each in of.items()})
    for name in ("next_block", "seconds_behind", "node_failures"):
        figures.show_each(
            name, {(chain, label): value for chain, each in of.items() for label, value in getattr(each, name).items()}
        )


@dataclass(slots=True, kw_only=True, eq=False)
class Lane:
    """Shapes that are read together. `at_head`: nothing is left to read now; `at_head_ms` is when it was so last.

    `task` reads on in a lane that is not the quiet one.
    """

    name: str
    events: ChainEvents
    at_head: bool = False
    at_head_ms: int | None = None
    task: asyncio.Task[None] | None = None


@dataclass(slots=True, kw_only=True)
class Lanes:
    """Where each shape of a chain is read. `signers_of` has the signers with triggers of a shape.

    `started` makes a lane that reads from a block on. A shape is refused a lane where each of its signers has three, or
    where the chain has fifteen and no signer has more of them than its own: else the signer with most loses one.
    """

    chain_id: int
    journal: Journal
    signers_of: Callable[[Shape], Collection[Address]]
    started: Callable[[str, int | None], Lane]
    disputes: Disputes
    began_ms: int
    interests: Interests = field(default_factory=Interests, init=False)
    quiet: Lane = field(init=False)
    # The second cursor.
    late: Lane = field(init=False)
    is_begun: bool = field(default=False, init=False)
    # Runs of blocks so near to the last one may still be orphaned.
    _read_until: int = field(default=0, init=False)
    _waited_ms: int = field(default=0, init=False)
    own: dict[Shape, Lane] = field(default_factory=dict["Shape", Lane], init=False)
    # Shapes that are not read, and since when, in milliseconds since 1970.
    too_busy: dict[Shape, int] = field(default_factory=dict["Shape", int], init=False)
    # Triggers that may not have been read for.
    new: set[Signature] = field(default_factory=set["Signature"], init=False)

    def __post_init__(self) -> None:
        """Begin with the places in the journal."""
        self.quiet, self.late = (self.started(name, self._kept(name)) for name in (QUIET, LATE))

    @property
    def has_places(self) -> bool:
        """Whether the journal has a place: a relayer read this chain before."""
        return self.quiet.events.reader.next_block is not None

    def is_read(self, now_ms: int) -> bool:
        """Whether a trigger waits, or the last one ended so few blocks ago that its runs may be orphaned."""
        next_block = self.quiet.events.reader.next_block or 0
        if self.interests.waiting:
            self._read_until, self._waited_ms = next_block + REORGANISED_MAX, now_ms
        elif next_block >= self._read_until or not 0 <= now_ms - self._waited_ms < _READ_ON_MS:
            self.is_begun = False
        return bool(self.interests.waiting) or self.is_begun

    def begin(self, oldest: int, now_ms: int) -> None:
        """Read again what may have been taken back while nothing was read, from a block on at the most."""
        for lane in (self.quiet, *self.others):
            lane.at_head_ms = None
            if (block := lane.events.reader.next_block) is not None:
                lane.events.reader.next_block = max(block - REORGANISED_MAX, oldest)
                lane.events.reader.go_back_to(lane.events.reader.next_block)  # also where a step is on its way
        self.is_begun, self.began_ms = True, now_ms

    def add(self, sig: Signature, waiting: Waiting) -> None:
        """A trigger waits from now on; a shape that had a lane of its own before a restart has it again."""
        if self.interests.waiting.get(sig) == waiting:
            return
        self.interests.add(sig, waiting)
        self.new.add(sig)
        for shape in waiting.shapes():
            if shape not in self.own and (block := self._kept(shape.name)) is not None:
                self.own[shape] = self.started(shape.name, block)

    def remove(self, sig: Signature) -> None:
        """A trigger waits no more."""
        self.interests.remove(sig)
        self.new.discard(sig)

    def next_block_of(self, sig: Signature) -> int | None:
        """Up to which block logs for a trigger were read; None: none were."""
        if sig in self.new or not self.has_places:
            return None
        return min(lane.events.reader.next_block or 0 for lane in self.lanes_of(sig))

    def lanes_of(self, sig: Signature) -> list[Lane]:
        """The lanes in which logs for a trigger are read."""
        return [self.own.get(shape, self.quiet) for shape in self.interests.waiting[sig].shapes()]

    def go_back(self, lane: Lane, block: int) -> None:
        """Read a lane from an earlier block on."""
        reader = lane.events.reader
        if reader.next_block is None:
            reader.next_block = block
        else:
            reader.go_back_to(block)
        self.keep_place(lane, min(block, reader.next_block))

    def place(self, now_ms: int) -> ChainPlace:
        """How far the chain was read."""
        lanes = (self.quiet, *self.others)
        return ChainPlace(
            self.chain_id, self.quiet.events.reader.head_block,
            {lane.name: lane.events.reader.next_block or 0 for lane in lanes},
            {lane.name: max(0, now_ms - (lane.at_head_ms or self.began_ms)) / 1_000 for lane in lanes},
            self.disputes.count, len(self.too_busy), self.disputes.failures,
        )  # fmt: skip

    def shapes(self, lane: Lane) -> dict[Shape, None]:
        """What is read in a lane. The second cursor reads what is quiet: a busy lane is late of itself."""
        if lane.name in {QUIET, LATE}:
            others = self.own.keys() | self.too_busy.keys()
            return dict.fromkeys(each for each in self.interests.shapes if each not in others)
        return dict.fromkeys(shape for shape, own in self.own.items() if own is lane)

    def keep_place(self, lane: Lane, block: int) -> None:
        """Remember the next block of a lane, or the first with a disputed log: those are read again after a restart.

        Nothing is kept for a lane that was dropped meanwhile.
        """
        if lane not in (self.quiet, *self.others):
            return
        block = min(block, block if (oldest := self.disputes.oldest_block) is None else oldest)
        name = place_name(self.chain_id, lane.name)
        if self.journal.fact(name) != str(block):
            self.journal.keep_fact(name, str(block))

    @property
    def others(self) -> list[Lane]:
        """The lanes that are not the quiet one."""
        return [*self.own.values(), self.late]

    def forget_gone(self, now_ms: int) -> None:
        """Drop the lanes of shapes without triggers, and try again those that were too busy for long."""
        for shape in [each for each in self.own if each not in self.interests.shapes]:
            self._drop(shape)
        for shape, since_ms in [*self.too_busy.items()]:
            if shape not in self.interests.shapes or now_ms - since_ms >= _TRIED_AGAIN_MS:
                del self.too_busy[shape]

    def move(self, shapes: Iterable[Shape], block: int, now_ms: int) -> list[Shape]:
        """Give busy shapes of the quiet lane lanes of their own, from a block on; those that are too busy now."""
        refused: list[Shape] = []
        for shape in shapes:
            if shape in self.own or shape not in self.interests.shapes:
                continue
            counts = Counter(signer for each in self.own for signer in self.signers_of(each))
            signers = self.signers_of(shape)
            fewest = min((counts[each] for each in signers), default=0)
            if fewest >= _LANES_OF_SIGNER_MAX:
                refused.append(shape)
                continue
            if len(self.own) >= _LANES_MAX:
                loser = self._of_most(counts)
                most = max((counts[each] for each in self.signers_of(loser)), default=0)
                refused.append(loser if most > fewest + 1 else shape)
                if refused[-1] is shape:
                    continue
                self._drop(loser)
            self.own[shape] = self.started(shape.name, block)
            self.keep_place(self.own[shape], block)
            _log.warning("a busy contract is read apart", chain=self.chain_id, contract=shape.contract)
        for shape in refused:
            self.too_busy[shape] = now_ms
            _log.error("a contract is too busy to be read", chain=self.chain_id, contract=shape.contract)
        return refused

    def calm(self, shape: Shape, block: int) -> bool:
        """Read a shape with the others again when it came as far as they; whether it did."""
        if block != self.quiet.events.reader.next_block:
            return False
        self._drop(shape)
        # The quiet lane may be on its way through the next blocks, without this shape.
        self.quiet.events.reader.go_back_to(block)
        return True

    def _of_most(self, counts: Counter[Address]) -> Shape:
        """The newest shape of the signer with most lanes."""

        def lanes(shape: Shape) -> int:
            return max((counts[each] for each in self.signers_of(shape)), default=0)

        return max(reversed(self.own), key=lanes)

    def _kept(self, lane: str) -> int | None:
        block = self.journal.fact(place_name(self.chain_id, lane))
        return None if block is None else int(block)

    def _drop(self, shape: Shape) -> None:
        del self.own[shape]
        self.journal.forget_fact(place_name(self.chain_id, shape.name))


def place_name(chain_id: int, lane: str) -> str:
    """The name of the next block to read of a lane."""
    return f"next block of chain {chain_id}" + ("" if lane == QUIET else f", lane {lane}")
