"""One chain followed: its settler's events in ranges of blocks, its reorganisations, its failed transactions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import structlog

from muniment.evm.rpc import Call, Failed
from muniment.intents.answers import FACTS_MAX, Block, blocks_of, may_be_size, pieces
from muniment.intents.evidence import (
    Execution,
    keep,
    lock_subjects,
    settle_late,
    settle_subjects,
)
from muniment.intents.nodes import CALLS_MAX, Node, Nodes
from muniment.intents.progress import (
    Followed,
    TakenBack,
    advance,
    begin,
    first_known,
    kept_blocks,
    read_progress,
    renew_lease,
    take_back,
)
from muniment.intents.receipts import Receipts
from muniment.intents.settlement import TOPICS, Fact, facts_of
from muniment.outgoing import Unreachable

if TYPE_CHECKING:
    from muniment.evm.address import Address
    from muniment.storage.database import Database, Transaction, Work

T = TypeVar("T")

# After so long every transaction that was open when a fact was stored is over; writes are given up much earlier.
_LATE_SECONDS: Final = 30.0

# How deep below the head blocks are kept beside the ends of ranges, so that a short reorganisation takes back little.
_MARKS: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256)

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Step:
    """What one step did with a chain: up to which block it is followed, or from which block on it goes again.

    At the head there are no more blocks to follow; `all_asked` then says that every named transaction was asked for.
    """

    chain_id: int
    next_block: int
    head: int
    facts: int = 0
    intents: int = 0
    taken_back: int | None = None
    at_head: bool = False
    all_asked: bool = False


@dataclass(slots=True, kw_only=True)
class Follower:
    """Follows one settler. `holder` has the lease; `confirmations` are blocks on top of one before it is read."""

    nodes: Nodes
    settler: Address
    confirmations: int
    database: Database
    holder: str
    now_ms: Callable[[], int]
    grace_s: int
    _followed: Followed | None = None
    _receipts: Receipts = field(init=False)
    _late_at_s: float = 0
    _late_from: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        """Have asked for no receipt yet."""
        self._receipts = Receipts(nodes=self.nodes, settler=self.settler, database=self.database)

    async def step(self, node: Node) -> Step:
        """Follow the next range, or go back behind a reorganisation, or at the head look after open ends.

        Raises `Unreachable` when the node does not do its part, `LeaseLostError`, `DatabaseUnavailable`.
        """
        followed = self._followed or await self._read()
        newest = followed.newest
        number, found = await self.nodes.look(node, newest and newest.number)
        if newest is not None and found is None:
            raise Unreachable("behind", "the node has not come as far as another before")
        if newest is not None and found != newest.hash:
            return await self._go_back(node, number)
        head = number - self.confirmations
        first = followed.next_block
        if first is None:
            first = await self._begin(head)
        if first <= head:
            return await self._follow(node, first, head, newest)
        facts, intents = await self._look_at_receipts(node, first - 1)
        await self._settle_late(first)
        return Step(self._chain_id, first, head, facts, intents, at_head=True, all_asked=self._receipts.all_asked)

    @property
    def _chain_id(self) -> int:
        return self.nodes.chain.id

    async def _write(self, work: Work[T]) -> T:
        """A transaction of the lease's holder. What is remembered of the progress is read again if it fails."""

        async def fenced(tx: Transaction) -> T:
            await renew_lease(tx, self.holder, self.now_ms())
            return await work(tx)

        self._followed, kept = None, self._followed
        result = await self.database.write(fenced)
        self._followed = kept
        return result

    async def _read(self) -> Followed:
        followed = await self._write(lambda tx: read_progress(tx, self._chain_id, self.settler.raw))
        if self._late_from is None and followed.next_block is not None:
            self._late_from = (max(0, followed.next_block - 1_000), followed.next_block)
        self._followed = followed
        return followed

    async def _begin(self, head: int) -> int:
        configured = self.nodes.chain.settler_block
        first = max(0, head) if configured is None else configured
        await self._write(lambda tx: begin(tx, self._chain_id, self.settler.raw, first))
        self._followed = None
        return first

    async def _follow(self, node: Node, first: int, head: int, newest: Block | None) -> Step:
        """Read one range. The same hash of its last block before and after says that all logs are of one chain."""
        last = min(head, first + node.span.blocks - 1)
        (before,) = await self.nodes.hashes(node, [last])
        logs = await self._logs(node, first, last)
        if before is None:
            raise Unreachable("behind")
        if logs is None:
            return Step(self._chain_id, first, head)
        blocks = blocks_of(logs, self.settler, first, last)
        if blocks.get(last, before) != before:
            raise Unreachable("garbage", "a log is not of the block that it names")
        known = {**blocks, last: before, **({newest.number: newest.hash} if newest else {})}
        marks = [last - depth for depth in _MARKS if last == head and last - depth >= first]
        asked = list(dict.fromkeys((*known, *marks)))
        found = dict(zip(asked, await self.nodes.hashes(node, asked), strict=True))
        if any(found[number] != block_hash for number, block_hash in known.items()):
            raise Unreachable("moving", "the chain changed while it was read")
        facts = [fact for fact in map(facts_of, logs) if fact is not None]
        seen = [Block(mark, block_hash) for mark in reversed(marks) if (block_hash := found[mark]) is not None]
        intents = 0
        for piece, end in pieces(facts, Block(last, before)):
            intents += await self._store(piece, first, [*(seen if end.number == last else ()), end])
            first = end.number + 1
        return Step(self._chain_id, first, head, len(facts), intents)

    async def _store(self, facts: Sequence[Fact], first: int, seen: Sequence[Block]) -> int:
        """Store facts and progress, and settle the intents they touch, in one transaction."""

        async def work(tx: Transaction) -> int:
            await keep(tx, (_execution(self._chain_id, fact) for fact in facts))
            await advance(tx, self._chain_id, self.settler.raw, first, seen)
            return await settle_subjects(tx, [fact.subject for fact in facts], self.now_ms(), self.grace_s)

        intents = await self._write(work)
        self._followed = Followed(seen[-1].number + 1, seen[-1])
        return intents

    async def _logs(self, node: Node, first: int, last: int) -> list[Any] | None:
        """What `eth_getLogs` answers for a range; None when the range is too large for the node."""
        asked = {
            "address": self.settler, "fromBlock": hex(first), "toBlock": hex(last), "topics": [list(TOPICS)],
        }  # fmt: skip
        blocks = last - first + 1
        try:
            (answer,) = await self.nodes.ask(node, [Call("eth_getLogs", (asked,))])
        except Unreachable as error:
            if not may_be_size(error.reason):
                raise
            smaller = node.span.refused(blocks)
            if not smaller or error.reason.startswith("http-5"):
                raise
            return None
        if isinstance(answer, Failed):
            if node.span.refused(blocks):
                return None
            raise Unreachable("refused", answer.message)
        if not isinstance(answer, list):
            raise Unreachable("garbage", "no list of logs")
        if blocks >= node.span.blocks:
            node.span.fitted()
        return cast("list[Any]", answer)

    async def _go_back(self, node: Node, head: int) -> Step:
        """Take back what was seen above the last block that is still the chain's, and follow again from there.

        When no kept block is the chain's any more, all that is kept of the chain is taken back, and it is followed
        from the settler's block on, or from the lowest block of which anything was known if that is lower: what stays
        below would be found to be another chain's again and again.
        """
        common = await self._last_common(node)
        if common is None:
            known = await self._write(lambda tx: first_known(tx, self._chain_id))
            down_to = min((each for each in (self.nodes.chain.settler_block, known) if each is not None), default=0)
        else:
            down_to = common + 1
        _log.warning("reorganisation", chain=self._chain_id, from_block=down_to, deeper_than_kept=common is None)
        lost = f"chain {self._chain_id} block {down_to}: reorganised from here on"
        facts = intents = 0
        piece = None
        while piece is None or not piece.is_last:
            piece, settled = await self._write(lambda tx: self._take_back(tx, down_to, lost))
            facts, intents = facts + piece.facts, intents + settled
        self._followed = None
        return Step(self._chain_id, down_to, head - self.confirmations, facts, intents, taken_back=down_to)

    async def _take_back(self, tx: Transaction, down_to: int, lost: str) -> tuple[TakenBack, int]:
        piece = await take_back(tx, self._chain_id, down_to, FACTS_MAX, lambda subjects: lock_subjects(tx, subjects))
        return piece, await settle_subjects(tx, piece.subjects, self.now_ms(), self.grace_s, lost=lost)

    async def _last_common(self, node: Node) -> int | None:
        below: int | None = None
        while True:
            kept = await self._write(
                lambda tx, below=below: kept_blocks(tx, self._chain_id, below=below, limit=CALLS_MAX)
            )
            if not kept:
                return None
            for block, found in zip(kept, await self.nodes.hashes(node, [each.number for each in kept]), strict=True):
                if found == block.hash:
                    return block.number
            below = kept[-1].number

    async def _look_at_receipts(self, node: Node, followed: int) -> tuple[int, int]:
        """Ask for outcomes of transactions that operators named; how many failed, and how many intents that touched."""
        found = await self._receipts.ask(node, followed)
        intents = 0
        for at in range(0, len(found), FACTS_MAX):
            piece = found[at : at + FACTS_MAX]
            intents += await self._write(lambda tx, piece=piece: self._keep_receipts(tx, piece))
        self._receipts.kept()
        return sum(each.outcome == "failed" for each in found), intents

    async def _keep_receipts(self, tx: Transaction, found: Sequence[Execution]) -> int:
        await keep(tx, found)
        failed = [each.subject for each in found if each.outcome == "failed"]
        return await settle_subjects(tx, failed, self.now_ms(), self.grace_s)

    async def _settle_late(self, next_block: int) -> None:
        """Every now and then look again at what was stored since the time before the last."""
        if self.nodes.now_s() < self._late_at_s:
            return
        older, newer = self._late_from or (next_block, next_block)
        now_ms = self.now_ms()
        await self._write(lambda tx: settle_late(tx, self._chain_id, older, now_ms, self.grace_s))
        self._late_from = (newer, next_block)
        self._late_at_s = self.nodes.now_s() + _LATE_SECONDS


def _execution(chain_id: int, fact: Fact) -> Execution:
    return Execution(
        chain_id, fact.block_number, fact.block_hash, fact.transaction_hash, fact.log_index, fact.settler.raw,
        fact.subject, "succeeded",
    )  # fmt: skip
