"""Follows one chain: its settlers' events, range by range, its reorganisations, and its failed transactions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, TypeVar

import structlog

from muniment.chains.logs import LogFilter, last_common, read_range
from muniment.chains.nodes import BEHIND, BLOCKS_PER_SECOND, CALLS_MAX, Block, Heads, Look, Node, Nodes
from muniment.operate.watch.events import TOPICS, SettlerEvent, event_in, pieces
from muniment.operate.watch.limits import WATCH_LIMITS
from muniment.operate.watch.progress import (
    Followed,
    RolledBack,
    advance,
    begin,
    first_known,
    kept_blocks,
    read_progress,
    registry_age_s,
    renew_lease,
    roll_back,
)
from muniment.operate.watch.receipts import Receipts
from muniment.outgoing import Unreachable
from muniment.protocol.intents.lifecycle import Moment
from muniment.service.resources.intents.chain_facts import (
    Fact,
    apply_late_facts,
    apply_to_subjects,
    insert_facts,
    lock_subjects,
)

if TYPE_CHECKING:
    from muniment.chains.catalogue import Chain
    from muniment.operate.watch.limits import WatchLimits
    from muniment.protocol.evm.address import Address
    from muniment.service.storage.database import Database, Transaction, Work

T = TypeVar("T")

# By this time every transaction that was open when a fact was stored has ended: writes time out much earlier.
_LATE_SECONDS: Final = 30.0

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Step:
    """The result of one step with a chain.

    `next_block` is the next block to follow, `head` the last block that may be followed now, `rolled_back` the first
    block of a reorganisation. `at_head`: no blocks are left to follow; then `all_asked` is whether a node was asked for
    the receipt of every named transaction. `is_held_back`: the node reported a higher head, which is not trusted yet.
    """

    chain_id: int
    next_block: int
    head: int
    facts: int = 0
    intents: int = 0
    rolled_back: int | None = None
    at_head: bool = False
    all_asked: bool = False
    is_held_back: bool = False


@dataclass(slots=True, kw_only=True)
class Follower:
    """Follows a chain's settlers. `holder` has the lease; a block is read when `confirmations` blocks are above it."""

    nodes: Nodes
    confirmations: int
    database: Database
    holder: str
    now_ms: Callable[[], int]
    grace_s: int
    limits: WatchLimits = WATCH_LIMITS
    _followed: Followed | None = None
    _began_s: float | None = None
    _heads: Heads = field(init=False)
    _receipts: list[Receipts] = field(init=False)
    _late_at_s: float = 0
    _late_from: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        """Begin without knowledge of the head and the receipts."""
        self._heads = Heads(nodes=self.nodes, now_ms=self.now_ms)
        self._receipts = [
            Receipts(nodes=self.nodes, settler=settler, database=self.database, limits=self.limits)
            for settler in self.settlers
        ]

    @property
    def settlers(self) -> tuple[Address, ...]:
        """The contracts whose events are followed."""
        return self.nodes.chain.settlers

    async def step(self, node: Node) -> Step:
        """Follow the next range, or roll back a reorganisation; at the head, ask for receipts.

        Raises `Unreachable` when the node fails, `LeaseLostError`, `DatabaseUnavailable`.
        """
        followed = self._followed or await self._read()
        newest = followed.newest
        self._began_s = self._began_s or self.nodes.now_s()
        look = await self.nodes.look(node, newest and newest.number)
        if self._is_behind(look, followed):
            if not self.nodes.all_behind():
                raise Unreachable(BEHIND, "the node lacks blocks that another node had")
            _log.warning("no node has the blocks that were followed", chain=self._chain_id, head=look.number)
            return await self._roll_back(node, look.number)
        if newest is not None and look.hash != newest.hash:
            return await self._roll_back(node, look.number)
        trusted = await self._heads.trusted(node, look, newest)
        head, is_held_back = trusted.number - self.confirmations, trusted.is_held_back
        if followed.next_block is None:
            followed = await self._begin(node, head)
        if followed.next_block is not None and followed.next_block <= head:
            return replace(await self._follow(node, followed, head), is_held_back=is_held_back)
        first = head + 1 if followed.next_block is None else followed.next_block
        facts, intents = await self._ask_for_receipts(node, first - 1)
        await self._apply_late_facts(first)
        all_asked = all(each.all_asked for each in self._receipts)
        return Step(
            self._chain_id, first, head, facts, intents, at_head=True, all_asked=all_asked, is_held_back=is_held_back
        )

    async def follow_again(self, block: int) -> Step:
        """Remove all facts from `block` on, so that these blocks are read again.

        A settler without progress begins at `block`. Raises `LeaseLostError`, `DatabaseUnavailable`.
        """

        async def start(tx: Transaction) -> None:
            await begin(tx, self._chain_id, self.settlers, block, None)

        await self._write(start)
        facts, intents = await self._remove_from(
            block, f"chain {self._chain_id} block {block}: read again from here on"
        )
        return Step(self._chain_id, block, block, facts, intents, rolled_back=block)

    def _is_behind(self, look: Look, followed: Followed) -> bool:
        """Whether the node lacks the newest followed block. The configured first block may lie in the future."""
        if followed.newest is not None:
            return look.hash is None
        configured = self.nodes.chain.settler_block
        next_block = followed.next_block or 0
        return next_block > look.number + 1 and (configured is None or next_block > configured)

    @property
    def _chain_id(self) -> int:
        return self.nodes.chain.id

    @property
    def _moment(self) -> Moment:
        return Moment(self.now_ms(), self.grace_s)

    async def _write(self, work: Work[T]) -> T:
        """Write as the holder of the lease. After a failure the progress is read from the database again."""

        async def fenced(tx: Transaction) -> T:
            await renew_lease(tx, self.holder, self.now_ms())
            return await work(tx)

        self._followed, kept = None, self._followed
        result = await self.database.write(fenced)
        self._followed = kept
        return result

    async def _read(self) -> Followed:
        followed = await self._write(lambda tx: read_progress(tx, self._chain_id, self.settlers))
        if self._late_from is None and followed.next_block is not None:
            self._late_from = (max(0, followed.next_block - 1_000), followed.next_block)
        self._followed = followed
        return followed

    async def _begin(self, node: Node, head: int) -> Followed:
        """Begin at the configured block, otherwise at the newest block, which the node must have.

        This is the newest block at the first request of this process: since then nodes may have failed or lied.
        """
        first, below = self.nodes.chain.settler_block, None
        if first is None:
            seconds = self.nodes.now_s() - (self._began_s or self.nodes.now_s())
            first = max(0, head - int(BLOCKS_PER_SECOND * seconds))
            below_hash, head_hash = await self.nodes.hashes(node, [max(0, first - 1), max(0, head)])
            if below_hash is None or head_hash is None:
                raise Unreachable(BEHIND, "the node lacks its own newest block")
            below = Block(first - 1, below_hash) if first else None
        settlers = (self._followed or await self._read()).settlers
        await self._write(lambda tx: begin(tx, self._chain_id, settlers, first, below))
        return await self._read()

    async def _follow(self, node: Node, followed: Followed, head: int) -> Step:
        """Read one range and store its events."""
        assert followed.next_block is not None  # noqa: S101 - `step` has begun
        first = followed.next_block
        end = head if followed.others_at is None else min(head, followed.others_at - 1)
        last = min(end, first + node.span.blocks - 1)
        wanted = LogFilter(followed.settlers, (TOPICS,))
        found = await read_range(self.nodes, node, wanted, first, last, newest=followed.newest, head=head)
        if found is None:
            return Step(self._chain_id, first, head)
        events = [event for event in map(event_in, found.logs) if event is not None]
        intents = 0
        for piece, reached in pieces(events, found.last, self.limits.facts_per_write):
            blocks = [*(found.marks if reached == found.last else ()), reached]
            intents += await self._store(piece, replace(followed, next_block=first), blocks)
            first = reached.number + 1
        return Step(self._chain_id, first, head, len(events), intents)

    async def _store(self, events: Sequence[SettlerEvent], followed: Followed, blocks: Sequence[Block]) -> int:
        """Store events and progress, and apply the events to their intents, in one transaction."""
        assert followed.next_block is not None  # noqa: S101 - see `_follow`
        first = followed.next_block

        async def work(tx: Transaction) -> int:
            await insert_facts(tx, (_fact(self._chain_id, event) for event in events))
            await advance(tx, self._chain_id, followed.settlers, first, blocks, self.limits)
            return await apply_to_subjects(tx, [event.subject for event in events], self._moment)

        intents = await self._write(work)
        # These settlers may have caught up with the others, and the newest block may belong to the others.
        is_alone = followed.others_at is None
        self._followed = replace(followed, next_block=blocks[-1].number + 1, newest=blocks[-1]) if is_alone else None
        return intents

    async def _roll_back(self, node: Node, head: int) -> Step:
        """Remove the facts above the newest kept block that the chain still has, and follow again from there."""
        common = await last_common(self.nodes, node, self._kept_blocks)
        if common is None:
            down_to = await self._write(lambda tx: _first_to_follow(tx, self.nodes.chain, head, self.now_ms()))
        else:
            down_to = common + 1
        _log.warning("reorganisation", chain=self._chain_id, from_block=down_to, deeper_than_kept=common is None)
        lost = f"chain {self._chain_id} block {down_to}: reorganised from here on"
        facts, intents = await self._remove_from(down_to, lost)
        return Step(self._chain_id, down_to, head - self.confirmations, facts, intents, rolled_back=down_to)

    async def _kept_blocks(self, below: int | None) -> list[Block]:
        return await self._write(lambda tx: kept_blocks(tx, self._chain_id, below=below, limit=CALLS_MAX))

    async def _remove_from(self, down_to: int, lost: str) -> tuple[int, int]:
        """Remove the facts from block `down_to` on; returns the numbers of facts and of their intents."""
        facts = intents = 0
        piece = None
        while piece is None or not piece.is_last:
            piece, touched = await self._write(lambda tx: self._remove(tx, down_to, lost))
            facts, intents = facts + piece.facts, intents + touched
        self._followed = None
        return facts, intents

    async def _remove(self, tx: Transaction, down_to: int, lost: str) -> tuple[RolledBack, int]:
        facts_max = self.limits.facts_per_write
        piece = await roll_back(tx, self._chain_id, down_to, facts_max, lambda subjects: lock_subjects(tx, subjects))
        return piece, await apply_to_subjects(tx, piece.subjects, self._moment, lost=lost)

    async def _ask_for_receipts(self, node: Node, followed: int) -> tuple[int, int]:
        """Ask for receipts of named transactions; returns the numbers of failed transactions and of their intents."""
        failed = intents = 0
        facts_max = self.limits.facts_per_write
        for receipts in self._receipts:
            found = await receipts.ask(node, followed)
            for at in range(0, len(found), facts_max):
                piece = found[at : at + facts_max]
                intents += await self._write(lambda tx, piece=piece: self._store_receipts(tx, piece))
            receipts.kept()
            failed += sum(each.outcome == "failed" for each in found)
        return failed, intents

    async def _store_receipts(self, tx: Transaction, found: Sequence[Fact]) -> int:
        await insert_facts(tx, found)
        failed = [each.subject for each in found if each.outcome == "failed"]
        return await apply_to_subjects(tx, failed, self._moment)

    async def _apply_late_facts(self, next_block: int) -> None:
        """Every `_LATE_SECONDS`, apply again the facts that were stored since the call before the last."""
        if self.nodes.now_s() < self._late_at_s:
            return
        older, newer = self._late_from or (next_block, next_block)
        await self._write(lambda tx: apply_late_facts(tx, self._chain_id, older, self._moment))
        self._late_from = (newer, next_block)
        self._late_at_s = self.nodes.now_s() + _LATE_SECONDS


def _fact(chain_id: int, event: SettlerEvent) -> Fact:
    return Fact(
        chain_id, event.block_number, event.block_hash, event.transaction_hash, event.log_index, event.settler.raw,
        event.subject, "succeeded",
    )  # fmt: skip


async def _first_to_follow(tx: Transaction, chain: Chain, head: int, now_ms: int) -> int:
    """The block to follow from when the chain has none of the kept blocks, so that no wrong block stays kept.

    It is the configured block, or the lowest block with a fact or a kept hash if that is lower. A lowest block above
    `head` proves nothing. If neither is known, following begins so far back that no event since the registry's first
    day is lost.
    """
    lowest = await first_known(tx, chain.id)
    known = [chain.settler_block, lowest if lowest is not None and lowest <= head else None]
    made_since = int(BLOCKS_PER_SECOND * await registry_age_s(tx, now_ms))
    return min((each for each in known if each is not None), default=max(0, head - made_since))
