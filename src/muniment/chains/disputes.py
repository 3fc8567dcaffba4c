"""Logs that one node of a chain lists and another does not: settled by receipts, or asked again until they are too old.

No single node decides: a log that a node invents makes no run, and one that a node hides is found by another.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

import structlog

from muniment.chains.logs import block_in, content_of
from muniment.chains.rpc import Call
from muniment.outgoing import Unreachable
from muniment.protocol.evm.hex import data_of

if TYPE_CHECKING:
    from muniment.chains.logs import ChainLog
    from muniment.chains.nodes import Node, Nodes

# Of one chain, at most half of them listed by one node. What does not fit is given up at once.
DISPUTES_MAX: Final = 1_000
_DISPUTES_OF_NODE_MAX: Final = DISPUTES_MAX // 2
# How long a step waits for receipts of new logs, and again for those of older ones.
SETTLE_S: float = 1.0
# Questions of one step for the logs of one lister, one at a time: for those that can be settled, and for others.
_SETTLED_MAX: Final = 64
_OPEN_MAX: Final = 8
# The pause before a dispute is asked again, doubled each time.
_PAUSE_S: Final = 5.0
_PAUSE_S_MAX: Final = 300.0
AGE_MS_MAX: Final = 86_400_000
# A line of the log says that nodes differ, at most so often: one that lies does so in each block, and a slow one is
# slow in each step.
_SAID_S: Final = 60.0
# Nodes that a range needs.
_NEEDED: Final = 2

_log = structlog.get_logger(__name__)


class Proof(Enum):
    """What the receipt of a node says of a log; `GONE`: its chain has another block at that number."""

    HAS = auto()
    LACKS = auto()
    GONE = auto()
    UNKNOWN = auto()


class Verdict(Enum):
    """What came of a dispute; `OPEN`: nothing yet."""

    TAKEN = auto()
    DROPPED = auto()
    OPEN = auto()


@dataclass(slots=True)
class Dispute:
    """A log that `lister` lists, whose block has this time, and that `other` does not have.

    `ordinal` is its number among equal logs of its transaction.
    """

    log: ChainLog
    time_s: int
    lister: Node
    other: Node
    ordinal: int = 0
    since_s: float = 0.0
    next_s: float = 0.0
    pause_s: float = _PAUSE_S
    # The question that is on its way, also after the step that asked it.
    asked: asyncio.Task[Verdict] | None = None


@dataclass(frozen=True, slots=True)
class _Round:
    """Nodes that are not asked again in one step: their own receipts lacked a log, or they gave no answer."""

    liars: set[Node] = field(default_factory=set["Node"])
    silent: set[Node] = field(default_factory=set["Node"])


class Settlement(NamedTuple):
    """Disputes whose log is taken, those that stay open, and those that are given up."""

    taken: list[Dispute]
    open: list[Dispute]
    given_up: list[Dispute]


@dataclass(slots=True, kw_only=True)
class Disputes:
    """The disputed logs of one chain, for all its readers. `age_ms_max` is how long they are asked for.

    `failures` counts all failures of nodes that readers have met, by their reason.
    """

    nodes: Nodes
    now_ms: Callable[[], int]
    age_ms_max: int = AGE_MS_MAX
    given_up: int = field(default=0, init=False)
    failures: Counter[str] = field(default_factory=Counter[str], init=False)
    _said_s: float | None = field(default=None, init=False)
    _named_s: dict[tuple[Node, str], float] = field(default_factory=dict[tuple["Node", str], float], init=False)
    _disputes: dict[ChainLog, Dispute] = field(default_factory=dict["ChainLog", Dispute], init=False)

    @property
    def count(self) -> int:
        """How many logs are disputed now."""
        return len(self._disputes)

    @property
    def oldest_block(self) -> int | None:
        """The lowest block with a disputed log: whoever starts anew reads from there."""
        return min((log.block_number for log in self._disputes), default=None)

    def __contains__(self, log: ChainLog) -> bool:
        """Whether the log is disputed already."""
        return log in self._disputes

    def name(self, node: Node, reason: str) -> None:
        """Say that two nodes do without this one, because it is slow, behind, or has other blocks."""
        now_s = self.nodes.now_s()
        if now_s - self._named_s.get((node, reason), -_SAID_S) >= _SAID_S:
            self._named_s[node, reason] = now_s
            self.failures[reason] += 1
            _log.warning("others do without a node", chain=self.nodes.chain.id, url=node.number, reason=reason)

    def forget(self, logs: Iterable[ChainLog]) -> None:
        """Drop disputes of logs that two nodes list now."""
        if self._disputes:
            for log in logs:
                self._disputes.pop(log, None)

    def add(self, disputes: Sequence[Dispute]) -> list[Dispute]:
        """Ask for these again later; those that are given up at once, because they are too many or too old.

        A node that lists too many rests where another can take its place.
        """
        now_s, given_up = self.nodes.now_s(), list[Dispute]()
        counts = Counter(each.lister for each in self._disputes.values())
        for dispute in disputes:
            dispute.since_s, dispute.next_s = now_s, now_s + _PAUSE_S
            is_full = counts[dispute.lister] >= _DISPUTES_OF_NODE_MAX
            if is_full or self._is_old(dispute):
                given_up.append(dispute)
                if is_full and sum(node.rests_until_s <= now_s for node in self.nodes.nodes) > _NEEDED:
                    self._fail(dispute.lister, "invents", dispute)
            elif self._disputes.setdefault(dispute.log, dispute) is dispute:
                counts[dispute.lister] += 1
        if disputes and (self._said_s is None or now_s - self._said_s >= _SAID_S):
            self._said_s, newest = now_s, disputes[-1]
            _log.warning(
                "nodes differ: a log that one of them lists alone waits", chain=self.nodes.chain.id,
                disputed=self.count, url=newest.lister.number, other=newest.other.number,
                block=newest.log.block_number, transaction="0x" + newest.log.transaction_hash.hex(),
            )  # fmt: skip
        return self._give_up(given_up)

    async def settle(self, disputes: Sequence[Dispute]) -> Settlement:
        """Ask for receipts, for one log of each lister at a time, and let the node rest that is proved wrong.

        What a node lists alone is dropped unasked once its own receipt lacked one of these logs. What is too much for
        one step stays open.
        """
        settlement, this_round, of = Settlement([], [], []), _Round(), dict["Node", list[Dispute]]()
        for dispute in disputes:
            of.setdefault(dispute.lister, []).append(dispute)
        await asyncio.gather(*(self._settle(each, settlement, this_round) for each in of.values()))
        return settlement

    async def _settle(self, disputes: Sequence[Dispute], settlement: Settlement, this_round: _Round) -> None:
        """Settle what one node lists. A question that takes too long is not given up: its answer counts later."""
        until_s, asked, unclear = self.nodes.now_s() + SETTLE_S, 0, 0
        for dispute in disputes:
            if dispute.lister in this_round.liars:
                continue
            now_s = self.nodes.now_s()
            if asked >= _SETTLED_MAX or unclear >= _OPEN_MAX or now_s >= until_s:
                settlement.open.append(dispute)
                continue
            asked += 1
            dispute.next_s = now_s + dispute.pause_s
            dispute.pause_s = min(_PAUSE_S_MAX, 2 * dispute.pause_s)
            dispute.asked = dispute.asked or asyncio.create_task(self._verdict(dispute, this_round))
            done, _ = await asyncio.wait({dispute.asked}, timeout=until_s - now_s)
            until_s = until_s if done else now_s
            verdict, dispute.asked = (dispute.asked.result(), None) if done else (Verdict.OPEN, dispute.asked)
            unclear += verdict is Verdict.OPEN
            if verdict is not Verdict.DROPPED:
                (settlement.taken if verdict is Verdict.TAKEN else settlement.open).append(dispute)

    async def settle_due(self, takes: Callable[[ChainLog], bool]) -> Settlement:
        """Ask again for disputes whose pause is over and that a reader `takes`; give up those that are too old."""
        now_s = self.nodes.now_s()
        old = [each for each in self._disputes.values() if self._is_old(each)]
        self.forget([each.log for each in old])
        due = [each for each in self._disputes.values() if each.next_s <= now_s and takes(each.log)]
        settlement = await self.settle(sorted(due, key=lambda each: each.next_s))
        still_open = {id(each) for each in settlement.open}
        self.forget([each.log for each in due if id(each) not in still_open])
        return settlement._replace(given_up=self._give_up(old))

    def _is_old(self, dispute: Dispute) -> bool:
        """By the own clock, or by the time of the block, which a lister may have made up."""
        age_s = max(self.nodes.now_s() - dispute.since_s, self.now_ms() / 1_000 - dispute.time_s)
        return age_s * 1_000 > self.age_ms_max

    def _give_up(self, disputes: list[Dispute]) -> list[Dispute]:
        if disputes:
            self.given_up += len(disputes)
            _log.error("disputed logs are given up", chain=self.nodes.chain.id, logs=len(disputes))
        return disputes

    async def _verdict(self, dispute: Dispute, this_round: _Round) -> Verdict:
        lister, other = dispute.lister, dispute.other
        own, others = await asyncio.gather(
            self._proof(lister, dispute, this_round), self._proof(other, dispute, this_round)
        )
        if own is Proof.LACKS:
            self._fail(lister, "invents", dispute)
            this_round.liars.add(lister)
            return Verdict.DROPPED
        if own is not Proof.HAS:
            return Verdict.DROPPED if own is Proof.GONE else Verdict.OPEN
        if others is Proof.HAS:
            self._fail(other, "omits", dispute)
            return Verdict.TAKEN
        third = await self._third(dispute, this_round)
        if third is Proof.HAS:
            self._fail(other, "omits", dispute)
            return Verdict.TAKEN
        if third is others is Proof.LACKS:
            self._fail(lister, "invents", dispute)
            this_round.liars.add(lister)
            return Verdict.DROPPED
        return Verdict.OPEN

    async def _third(self, dispute: Dispute, this_round: _Round) -> Proof:
        """What a third node says, in the operator's order."""
        now_s = self.nodes.now_s()
        for node in self.nodes.nodes:
            if node not in (dispute.lister, dispute.other) and node.rests_until_s <= now_s:
                proof = await self._proof(node, dispute, this_round)
                if proof in {Proof.HAS, Proof.LACKS}:
                    return proof
        return Proof.UNKNOWN

    def _fail(self, node: Node, reason: str, dispute: Dispute) -> None:
        """Let the node rest; what it gave wrongly in one step is one failure, however many logs that are."""
        self.failures[reason] += 1
        if node.rests_until_s > self.nodes.now_s():
            return
        self.nodes.failed(node, reason)
        _log.warning(
            f"node failed: it {reason} a log", chain=self.nodes.chain.id, url=node.number, reason=reason,
            block=dispute.log.block_number, transaction="0x" + dispute.log.transaction_hash.hex(),
        )  # fmt: skip

    async def _proof(self, node: Node, dispute: Dispute, this_round: _Round) -> Proof:
        """A node says that a log is absent only where it has the block."""
        if node in this_round.silent:
            return Proof.UNKNOWN
        log = dispute.log
        calls = [
            Call("eth_getTransactionReceipt", ("0x" + log.transaction_hash.hex(),)),
            Call("eth_getBlockByHash", ("0x" + log.block_hash.hex(), False)),
            Call("eth_getBlockByNumber", (hex(log.block_number), False)),
        ]
        try:
            receipt, *blocks = await self.nodes.ask(node, calls)
            by_hash, by_number = map(block_in, blocks)
        except Unreachable as error:
            if error.reason != "too-large":
                this_round.silent.add(node)
            return Proof.UNKNOWN
        if by_number is None or by_number.hash != log.block_hash:
            return Proof.UNKNOWN if by_number is None else Proof.GONE
        if by_hash != by_number or by_number[::2] != (log.block_number, dispute.time_s):
            return Proof.UNKNOWN
        return _proof_in(receipt, log)


def _proof_in(answer: object, log: ChainLog) -> Proof:
    """What a receipt says of a log. One that is null has no logs; an error says nothing."""
    if answer is None:
        return Proof.LACKS
    receipt = cast("dict[str, Any]", answer) if isinstance(answer, dict) else {}
    entries = receipt.get("logs")
    if not isinstance(entries, list):
        return Proof.UNKNOWN
    is_here = data_of(receipt.get("blockHash")) == log.block_hash
    return Proof.HAS if is_here and any(_is_log(each, log) for each in cast("list[object]", entries)) else Proof.LACKS


def _is_log(entry: object, log: ChainLog) -> bool:
    try:
        content = content_of(entry)
    except Unreachable:
        return False
    return (content.contract, content.topics, content.data, content.index) == (*log[4:], log.place)
