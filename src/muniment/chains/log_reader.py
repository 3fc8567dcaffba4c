"""Reads the logs of one chain as it grows: range by range, back after a fork, each log as two nodes have it."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import InitVar, dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

import structlog

from muniment.chains.disputes import Dispute, Disputes
from muniment.chains.logs import ChainLog, block_in, last_common, number_of
from muniment.chains.nodes import BEHIND, CALLS_MAX, Block, Heads, Look, Node
from muniment.chains.range_views import EXCESS_MAX, LOGS_MAX
from muniment.chains.ranges import FEW_BLOCKS, Ranges
from muniment.chains.rpc import Call
from muniment.outgoing import Unreachable
from muniment.protocol.evm.address import Address
from muniment.protocol.evm.hex import Bytes32, HexString

if TYPE_CHECKING:
    from muniment.chains.logs import LogFilter
    from muniment.chains.nodes import Nodes
    from muniment.chains.range_views import RangeView

# Where the chain ends before the place to read from: blocks that are read of it, as many as after a restart.
_BEGUN_ANEW_BLOCKS: Final = 200
# The head of such a chain is newer than this.
_NEW_S: Final = 600.0
# Hashes that reveal a fork. No chain of the catalogue has taken back 200 blocks.
_BLOCKS_KEPT: Final = 1_000
# Nodes differ by some blocks, and a URL may lead to one that lags: that is no failure for so long.
_PATIENCE_S: Final = 10.0
_HELD_BACK_MAX: Final = 63
# How much longer than two nodes a third may take to tell its head.
GRACE_S: Final = 0.5
# The time of a look: a node that takes longer is not read.
LOOK_S: float = 5.0
# A pause between two samples of the head.
_SAMPLE_S: Final = 1.0

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class SeenLog:
    """A log. `index` is its place in its block, `ordinal` its number among equal logs of its transaction, from 0."""

    contract: Address
    topics: tuple[Bytes32, ...]
    data: HexString
    block_number: int
    block_hash: Bytes32
    block_time_s: int
    transaction_hash: Bytes32
    index: int
    ordinal: int

    @classmethod
    def of(cls, log: ChainLog, time_s: int, ordinal: int) -> SeenLog:
        """A log of nodes, with the time of its block."""
        return cls(
            Address.from_raw(log.contract), tuple(map(Bytes32.from_raw, log.topics)), HexString.from_raw(log.data),
            log.block_number, Bytes32.from_raw(log.block_hash), time_s, Bytes32.from_raw(log.transaction_hash),
            log.place, ordinal,
        )  # fmt: skip


class LogStep(NamedTuple):
    """What a step read. `gone_back_to` is the first block of a fork: what was read from there on is of another chain.

    `logs` may have logs of earlier blocks, which were disputed. `at_head`: no block can be read now. `excess` are logs
    of a range that had more than `LOGS_MAX`, which is read again in parts. `refused` are filters that nodes refuse even
    for a few blocks.
    `disputed_out` are logs on which nodes differ, and which are given up.
    """

    logs: tuple[SeenLog, ...]
    next_block: int
    gone_back_to: int | None = None
    at_head: bool = False
    excess: tuple[SeenLog, ...] = ()
    refused: tuple[LogFilter, ...] = ()
    disputed_out: tuple[SeenLog, ...] = ()


class _Settled(NamedTuple):
    """Logs of disputes that have ended: those that are taken, and those that are given up."""

    logs: tuple[SeenLog, ...] = ()
    disputed_out: tuple[SeenLog, ...] = ()

    def joined(self, other: _Settled) -> _Settled:
        """Those of both."""
        return _Settled(self.logs + other.logs, self.disputed_out + other.disputed_out)


@dataclass(slots=True, kw_only=True)
class LogReader:
    """Reads logs from `next_block` on; None: from the first block after the head at the first step.

    A block is read when `confirmations` blocks are on top of it; with `lag_blocks` and `lag_seconds`, also only so many
    blocks and seconds after it became the head. `now_ms` is the time, which may jump. Readers of one chain share
    `disputes` and `heads`.

    Where several nodes are configured, two must answer for each range, and a log counts that both have.
    """

    nodes: Nodes
    confirmations: int
    now_ms: Callable[[], int]
    next_block: int | None = None
    lag_blocks: int = 0
    lag_seconds: float = 0.0
    disputes: InitVar[Disputes | None] = None
    heads: InitVar[Heads | None] = None
    head_block: int | None = field(default=None, init=False)
    odd_logs: Counter[str] = field(default_factory=Counter[str], init=False)
    _disputes: Disputes = field(init=False)
    _heads: Heads = field(init=False)
    _ranges: Ranges = field(init=False)
    _kept: list[Block] = field(default_factory=list[Block], init=False)
    # The first block after what is forgotten of `_kept`.
    _kept_from: int = field(default=0, init=False)
    # Since when nodes lack the newest block that was read.
    _lacking: dict[Node, float] = field(default_factory=dict["Node", float], init=False)
    _waits_since_s: float | None = field(default=None, init=False)
    # Since when two others are ahead of nodes, or differ from them.
    _apart_since_s: dict[Node, float] = field(default_factory=dict["Node", float], init=False)
    # Since when the place is above the heads of all nodes, where nothing is kept.
    _above_since_s: float | None = field(default=None, init=False)
    # Blocks below the head that are left for later, because nodes lacked the end of a range.
    _held_back: int = field(default=0, init=False)
    _heads_seen: deque[tuple[float, int]] = field(default_factory=deque[tuple[float, int]], init=False)
    # Where the reader was made to go back to since the last step began.
    _back_to: int | None = field(default=None, init=False)
    # What came of older disputes in the last step, which is given again when it could not be used.
    _settled: _Settled = field(default=_Settled(), init=False)
    _again: _Settled = field(default=_Settled(), init=False)

    def __post_init__(self, disputes: Disputes | None, heads: Heads | None) -> None:
        """Begin without knowledge of the head."""
        self._disputes = disputes or Disputes(nodes=self.nodes, now_ms=self.now_ms)
        self._heads = heads or Heads(nodes=self.nodes, now_ms=self.now_ms)
        self._ranges = Ranges(self.nodes, self._fail)

    def go_back_to(self, block: int) -> None:
        """Read again from `block` on, if that was read or is being read. What was read reveals a fork as before."""
        self._again, self._settled = self._again.joined(self._settled), _Settled()
        self._back_to = block if self._back_to is None else min(block, self._back_to)
        if self.next_block is not None:
            self.next_block = min(block, self.next_block)

    async def step(self, filters: Sequence[LogFilter]) -> LogStep:
        """Read the next range, or find where a fork began. Nothing moves on if it raises.

        Raises `Unreachable` when too few nodes answer, and when they differ in their blocks for a while.
        """
        self._back_to = None
        looks, newest = await self._looks(), self._kept[-1] if self._kept else None
        here = [node for node, look in looks.items() if newest is None or look.hash == newest.hash]
        if len(here) < self._ranges.needed:
            return await self._apart(looks, newest)
        self._name_others(looks, newest)
        head = await self._head(here, looks, newest)
        limit = self._limit(head)
        if limit is None:
            return await self._end(LogStep((), self.next_block or 0, at_head=True), filters)
        first = self.next_block = max(0, limit + 1) if self.next_block is None else self.next_block
        if await self._is_begun_anew(looks, head):
            first = self._go_on_at(max(0, limit + 1 - _BEGUN_ANEW_BLOCKS))
        if first <= limit and filters:
            ready = [node for node in here if looks[node].number >= head]
            return await self._end(await self._read(ready, filters, first, limit), filters)
        self._waits_since_s = None
        next_block = self._go_on_at(max(first, limit + 1))
        return await self._end(LogStep((), next_block, at_head=next_block > limit), filters)

    def _go_on_at(self, block: int) -> int:
        """Read from `block` on next, or from where the reader was made to go back to meanwhile; that block."""
        self.next_block = block if self._back_to is None else min(block, self._back_to)
        return self.next_block

    async def _is_begun_anew(self, looks: dict[Node, Look], head: int) -> bool:
        """Whether this is another chain than before: for minutes no node reaches the place, though the head is new.

        A node that still syncs has old blocks. Raises `Unreachable`.
        """
        now_s, first = self.nodes.now_s(), self.next_block or 0
        if self._kept or first <= max(look.number for look in looks.values()) + 1:
            self._above_since_s = None
            return False
        if self._above_since_s is None:
            self._above_since_s = now_s
        if now_s - self._above_since_s < self.nodes.limits.behind_seconds:
            return False
        nodes = [node for node, look in looks.items() if look.number >= head][: self._ranges.needed]
        times = [(await self.nodes.look(node, head)).time_s for node in nodes]
        return all(each is not None and self.now_ms() / 1_000 - each < _NEW_S for each in times)

    async def _looks(self) -> dict[Node, Look]:
        """The heads of the nodes that are awake and answer, with the newest block that was read."""
        now_s, newest = self.nodes.now_s(), self._kept[-1] if self._kept else None
        awake = [node for node in self.nodes.nodes if node.rests_until_s <= now_s]
        looks = await self._asked(awake, newest)
        for node, look in looks.items():
            if newest is not None and look.hash is None:
                self._lacking.setdefault(node, now_s)
            else:
                self._lacking.pop(node, None)
        return looks

    async def _asked(self, awake: Sequence[Node], newest: Block | None) -> dict[Node, Look]:
        """Nodes that are slower than as many as are needed are not waited for."""
        tasks = {node: asyncio.create_task(self._look(node, newest)) for node in awake}
        waiting, looks = set(tasks.values()), dict[Node, Look]()
        try:
            while waiting:
                enough = len(looks) >= self._ranges.needed
                _, waiting = await asyncio.wait(
                    waiting, timeout=GRACE_S if enough else None,
                    return_when=asyncio.ALL_COMPLETED if enough else asyncio.FIRST_COMPLETED,
                )  # fmt: skip
                looks = {node: look for node, task in tasks.items() if task.done() and (look := task.result())}
                if enough:
                    break
        finally:
            for task in waiting:
                task.cancel()
        return looks

    async def _look(self, node: Node, newest: Block | None) -> Look | None:
        try:
            async with asyncio.timeout(LOOK_S):
                return await _look(self.nodes, node, newest)
        except TimeoutError:
            self._fail(node, Unreachable("timeout"))
        except Unreachable as error:
            self._fail(node, error)
        return None

    def _name_others(self, looks: dict[Node, Look], newest: Block | None) -> None:
        """Name nodes that are not needed now: since nobody waits for them, nothing else tells the operator."""
        now_s, has_read, self._ranges.has_read = self.nodes.now_s(), self._ranges.has_read, False
        for node in self.nodes.nodes:
            if node.rests_until_s > now_s:
                self._apart_since_s.pop(node, None)
                continue
            look = looks.get(node)
            is_here = look is not None and (newest is None or look.hash == newest.hash)
            if is_here and node not in self._ranges.slow:
                self._apart_since_s.pop(node, None)
                continue
            if is_here and not has_read:
                continue
            reason = "slow" if look is None or is_here else BEHIND if look.hash is None else "other-blocks"
            if now_s - self._apart_since_s.setdefault(node, now_s) >= _PATIENCE_S:
                self._disputes.name(node, reason)

    def _fail(self, node: Node, error: Unreachable) -> None:
        self.nodes.failed(node, error.reason)
        self._disputes.failures[error.reason] += 1
        _log.warning("node failed", chain=self.nodes.chain.id, url=node.number, reason=error.reason, text=str(error))

    async def _apart(self, looks: dict[Node, Look], newest: Block | None) -> LogStep:
        """Too few nodes have the newest block that was read: go back, or wait. Raises `Unreachable`."""
        away = [
            node for node, look in looks.items()
            if newest is not None and look.hash is not None and look.hash != newest.hash
        ]  # fmt: skip
        is_nowhere = bool(looks) and all(node in self._lacking for node in looks) and self._are_all_lacking()
        if len(away) >= self._ranges.needed or is_nowhere:
            return await self._go_back(away[: self._ranges.needed] or list(looks))
        if len(looks) < self._ranges.needed:
            raise Unreachable("unreachable", "too few nodes of the chain answer")
        return self._wait("nodes lack blocks that others had, or have other blocks")

    def _are_all_lacking(self) -> bool:
        """Whether the newest block that was read is nowhere; a node that fails for long counts as one that lacks it."""
        now_s, limits = self.nodes.now_s(), self.nodes.limits
        return all(
            now_s - self._lacking.get(node, now_s) >= limits.behind_seconds
            or (node.failing_since_s is not None and now_s - node.failing_since_s >= limits.silent_seconds)
            for node in self.nodes.nodes
        )

    def _wait(self, text: str) -> LogStep:
        """Raises `Unreachable` after a while."""
        now_s = self.nodes.now_s()
        if self._waits_since_s is None:
            self._waits_since_s = now_s
        if now_s - self._waits_since_s >= _PATIENCE_S:
            raise Unreachable(BEHIND, text)
        return LogStep((), self.next_block or 0, at_head=True)

    async def _go_back(self, asked: Sequence[Node]) -> LogStep:
        firsts: list[int] = []
        for node in asked:
            try:
                common = await last_common(self.nodes, node, self._kept_below)
            except Unreachable as error:
                self._fail(node, error)
                raise
            firsts.append(self._kept_from if common is None else common + 1)
        first = min(firsts)
        self.next_block = first if self.next_block is None else min(first, self.next_block)
        self._kept = [each for each in self._kept if each.number < first]
        self._lacking.clear()
        self._heads_seen.clear()
        return LogStep((), self.next_block, gone_back_to=first)

    async def _kept_below(self, below: int | None) -> list[Block]:
        kept = [each for each in self._kept if below is None or each.number < below]
        return kept[-CALLS_MAX:][::-1]

    async def _head(self, here: Sequence[Node], looks: dict[Node, Look], newest: Block | None) -> int:
        """The head that two nodes have reached; that of the only node as far as it may be trusted."""
        if self._ranges.needed == 1:
            head = (await self._heads.trusted(here[0], looks[here[0]], newest)).number
        else:
            head = sorted((looks[node].number for node in here), reverse=True)[self._ranges.needed - 1]
        self.head_block = head
        return head

    def _limit(self, head: int) -> int | None:
        """The last block that may be read; None: the head was not seen for `lag_seconds` yet."""
        limit = head - max(self.confirmations, self.lag_blocks)
        if not self.lag_seconds:
            return limit
        now_s, seen = self.nodes.now_s(), self._heads_seen
        if not seen or now_s - seen[-1][0] >= _SAMPLE_S:
            seen.append((now_s, head))
        while len(seen) > 1 and now_s - seen[1][0] >= self.lag_seconds:
            seen.popleft()
        return min(limit, seen[0][1]) if now_s - seen[0][0] >= self.lag_seconds else None

    async def _read(self, ready: Sequence[Node], filters: Sequence[LogFilter], first: int, limit: int) -> LogStep:
        last = self._ranges.last_block(ready, first, limit - self._held_back)
        blocks, newest = last - first + 1, self._kept[-1] if self._kept else None
        views, refusals = await self._ranges.views(ready, filters, first, last, newest)
        if not views:
            if not refusals:
                self._held_back = min(_HELD_BACK_MAX, 2 * self._held_back + 1)
                return self._wait("nodes lack the end of a range, or have other blocks")
            is_few = blocks <= FEW_BLOCKS
            parts = {part for refusal in refusals for part in refusal.filters if is_few}
            refused = tuple(each for each in filters if not parts.isdisjoint(each.parts()))
            return LogStep((), first, at_head=blocks == 1, refused=refused)
        self._waits_since_s, self._held_back = None, 0
        full = [node for node, view in views if len(view.logs) > LOGS_MAX]
        if full and blocks > 1:  # a node that invents many logs slows down nobody else
            self._ranges.halve(full, blocks)
            return LogStep((), first, excess=self._excess([view for _, view in views]))
        for node, view in views:
            self._ranges.succeed(node, view, blocks)
            self.odd_logs.update(view.odd)
        seen, given_up = await self._agreed(views)
        self._keep(first, Block(last, views[0][1].last), seen)
        self._go_on_at(last + 1)
        at_head = self.next_block == limit + 1
        return LogStep(tuple(seen), self.next_block or 0, at_head=at_head, disputed_out=tuple(given_up))

    def _excess(self, views: Sequence[RangeView]) -> tuple[SeenLog, ...]:
        """The newest logs of a range with many that all views have: what one node invents makes no contract busy.

        Their times are at least those of their blocks.
        """
        first, *others = views
        logs = [log for log in first.logs if all(log in each.logs for each in others)][-EXCESS_MAX:]
        time_s = max((each.logs[log] for each in views for log in logs), default=0)
        return tuple(SeenLog.of(log, min(time_s, self.now_ms() // 1_000), 0) for log in logs)

    async def _agreed(self, views: Sequence[tuple[Node, RangeView]]) -> tuple[list[SeenLog], list[SeenLog]]:
        """The logs that count, in the order of the chain, and those that are given up. Others are disputed."""
        (node, view), (other, others) = views[0], views[-1]
        common = {log: time_s for log, time_s in view.logs.items() if others.logs.get(log) == time_s}
        self._disputes.forget(common)
        alone = [
            Dispute(log, time_s, lister, absent)
            for lister, absent, logs in ((node, other, view.logs), (other, node, others.logs))
            for log, time_s in logs.items()
            if log not in common and log not in self._disputes
        ]
        settlement = await self._disputes.settle(alone)
        taken = common | {each.log: each.time_s for each in settlement.taken}
        # Two nodes may list a log with two times of its block.
        unclear = {each.log: each for each in settlement.open if each.log not in taken}
        earlier = [log for log in {**view.logs, **others.logs} if log in self._disputes]
        ordinals = _ordinals({*taken, *unclear, *earlier})
        for dispute in unclear.values():
            dispute.ordinal = ordinals[dispute.log]
        given_up = self._disputes.add(list(unclear.values()))
        seen = [SeenLog.of(log, time_s, ordinals[log]) for log, time_s in taken.items()]
        return _in_order(seen), _in_order(_seen(each) for each in given_up)

    def _keep(self, first: int, last: Block, seen: Sequence[SeenLog]) -> None:
        """Keep the hash of the last block of a range, and those of the blocks with logs."""
        self._kept_from = min(first, self._kept_from) if self._kept else first
        hashes = {log.block_number: log.block_hash.raw for log in seen} | {last.number: last.hash}
        kept = [Block(*each) for each in sorted(({each.number: each.hash for each in self._kept} | hashes).items())]
        if len(kept) > _BLOCKS_KEPT:
            self._kept_from = kept[-_BLOCKS_KEPT - 1].number + 1
        self._kept = kept[-_BLOCKS_KEPT:]

    async def _end(self, step: LogStep, filters: Sequence[LogFilter]) -> LogStep:
        """The step with what has come of older disputes."""
        again, self._again = self._again, _Settled()
        takers = [each.taker() for each in filters] if self._disputes.count else []
        taken, _, given_up = await self._disputes.settle_due(lambda log: any(takes(log) for takes in takers))
        self._settled = again.joined(_Settled(tuple(map(_seen, taken)), tuple(map(_seen, given_up))))
        return step._replace(
            logs=(*self._settled.logs, *step.logs), disputed_out=(*step.disputed_out, *self._settled.disputed_out)
        )


async def _look(nodes: Nodes, node: Node, newest: Block | None) -> Look:
    """The head of a node, and what it has at the number of the newest block. Raises `Unreachable`."""
    calls = [Call("eth_blockNumber")]
    if newest is not None:
        calls.append(Call("eth_getBlockByNumber", (hex(newest.number), False)))
    answer, *blocks = await nodes.ask(node, calls)
    number, block = number_of(answer), block_in(blocks[0]) if blocks else None
    if number is None or (block is not None and newest is not None and block.number != newest.number):
        raise Unreachable("garbage", "no block number")
    return Look(number, block and block.hash, block and block.time_s)


def _seen(dispute: Dispute) -> SeenLog:
    return SeenLog.of(dispute.log, dispute.time_s, dispute.ordinal)


def _in_order(logs: Iterable[SeenLog]) -> list[SeenLog]:
    return sorted(logs, key=lambda log: (log.block_number, log.index, log.transaction_hash))


def _ordinals(logs: Iterable[ChainLog]) -> dict[ChainLog, int]:
    """The number of each log among the equal ones of its transaction, by their places."""
    counts, ordinals = Counter[tuple[object, ...]](), dict[ChainLog, int]()
    for log in sorted(logs, key=lambda each: each.place):
        equal = (log.block_hash, log.transaction_hash, *log[4:])
        ordinals[log] = counts[equal]
        counts[equal] += 1
    return ordinals
