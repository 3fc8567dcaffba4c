"""Reads the logs of one chain as it grows: range by range, back after a fork, each log as two nodes have it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from muniment.chains.agreeing import agreed
from muniment.chains.logs import LogContent, LogFilter, content_of, last_common, read_range
from muniment.chains.nodes import BEHIND, CALLS_MAX, Block, Heads, block_time_in
from muniment.chains.rpc import Call, Failed
from muniment.outgoing import Unreachable
from muniment.protocol.evm.address import Address
from muniment.protocol.evm.hex import Bytes32, HexString, data_of, quantity_of

if TYPE_CHECKING:
    from muniment.chains.nodes import Node, Nodes

# Logs of one step. Each may cost the receipt of its transaction; a range with more is read in parts.
LOGS_MAX: Final = 500
# Hashes that reveal a fork. No chain of the catalogue has taken back 200 blocks.
_BLOCKS_KEPT: Final = 1_000


@dataclass(frozen=True, slots=True)
class SeenLog:
    """A log. `index` is its place in its block, `position` its place in the receipt of its transaction."""

    contract: Address
    topics: tuple[Bytes32, ...]
    data: HexString
    block_number: int
    block_hash: Bytes32
    block_time_s: int
    transaction_hash: Bytes32
    index: int
    position: int


class LogStep(NamedTuple):
    """What a step read. `gone_back_to` is the first block of a fork: what was read from there on is of another chain.

    `at_head`: no block is left to read now.
    """

    logs: tuple[SeenLog, ...]
    next_block: int
    gone_back_to: int | None = None
    at_head: bool = False


class _Receipt(NamedTuple):
    number: int
    block_hash: bytes
    time_s: int
    logs: tuple[LogContent, ...]


@dataclass(slots=True, kw_only=True)
class LogReader:
    """Reads logs from `next_block` on; None: from the first block after the head at the first step.

    A block is read when `confirmations` blocks are on top of it. `now_ms` is the time, which may jump.
    """

    nodes: Nodes
    confirmations: int
    now_ms: Callable[[], int]
    next_block: int | None = None
    _kept: list[Block] = field(default_factory=list[Block])
    _heads: Heads = field(init=False)

    def __post_init__(self) -> None:
        """Begin without knowledge of the head."""
        self._heads = Heads(nodes=self.nodes, now_ms=self.now_ms)

    def go_back_to(self, block: int) -> None:
        """Read again from `block` on, if that was read already."""
        if self.next_block is not None and block < self.next_block:
            self.next_block = block
            self._kept = [each for each in self._kept if each.number < block]

    async def step(self, node: Node, wanted: Sequence[LogFilter]) -> LogStep:
        """Read the next range, or find where a fork began. Nothing moves on if it raises.

        Raises `Unreachable` when `node` fails, and `DisagreementError` when nodes have different receipts.
        """
        newest = self._kept[-1] if self._kept else None
        look = await self.nodes.look(node, newest and newest.number)
        if newest is not None and look.hash != newest.hash:
            if look.hash is None and not self.nodes.all_behind():
                raise Unreachable(BEHIND, "the node lacks blocks that another node had")
            return await self._go_back(node)
        head = (await self._heads.trusted(node, look, newest)).number - self.confirmations
        first = max(0, head + 1) if self.next_block is None else self.next_block
        self.next_block = first
        if first > head:
            return LogStep((), first, at_head=True)
        if not wanted:
            self.next_block = head + 1
            return LogStep((), self.next_block, at_head=True)
        return await self._read(node, wanted, first, head)

    async def _read(self, node: Node, wanted: Sequence[LogFilter], first: int, head: int) -> LogStep:
        newest = self._kept[-1] if self._kept else None
        last = min(head, first + node.span.blocks - 1)
        found = await read_range(self.nodes, node, wanted, first, last, newest=newest, head=head)
        if found is None or (len(found.logs) > LOGS_MAX and node.span.refused(last - first + 1)):
            return LogStep((), first)
        logs = await self._confirmed(found.logs)
        if logs is None:
            return LogStep((), first, at_head=True)
        self.next_block = last + 1
        self._kept = [*self._kept, *(each for each in found.marks if each.number < last), found.last][-_BLOCKS_KEPT:]
        return LogStep(tuple(logs), last + 1, at_head=last == head)

    async def _go_back(self, node: Node) -> LogStep:
        common = await last_common(self.nodes, node, self._kept_below)
        oldest = self._kept[0].number
        self.next_block = oldest if common is None else common + 1
        self._kept = [each for each in self._kept if each.number < self.next_block]
        return LogStep((), self.next_block, gone_back_to=self.next_block)

    async def _kept_below(self, below: int | None) -> list[Block]:
        kept = [each for each in self._kept if below is None or each.number < below]
        return kept[-CALLS_MAX:][::-1]

    async def _confirmed(self, logs: Sequence[Any]) -> list[SeenLog] | None:
        """The logs in the order of the chain, as two nodes have them in receipts; None: too few nodes have these yet.

        Raises `Unreachable` for a log that its receipt does not have, `DisagreementError`.
        """
        places = {(HexString(log["transactionHash"]), quantity_of(log["logIndex"])): log for log in logs}
        names = tuple(sorted({name for name, _ in places}))
        if not names:
            return []
        found = await agreed(self.nodes, lambda node: self._receipts(node, names))
        if found is None:
            return None
        receipts = dict(zip(names, found, strict=True))
        seen = [_seen(name, index, receipts[name], log) for (name, index), log in places.items()]
        return sorted(seen, key=lambda each: (each.block_number, each.index))

    async def _receipts(self, node: Node, names: Sequence[HexString]) -> tuple[_Receipt, ...] | None:
        """The receipts of transactions as one node has them; None: it lacks one. Raises `Unreachable`."""
        answers = await self.nodes.ask(node, [Call("eth_getTransactionReceipt", (name,)) for name in names])
        if any(answer is None for answer in answers):
            return None
        hashes = list(dict.fromkeys(_block_hash(answer) for answer in answers))
        blocks = await self.nodes.ask(node, [Call("eth_getBlockByHash", (each, False)) for each in hashes])
        if any(block is None for block in blocks):
            return None
        times = {name: block_time_in(block) for name, block in zip(hashes, blocks, strict=True)}
        return tuple(_receipt(answer, times[_block_hash(answer)]) for answer in answers)


def _block_hash(answer: object) -> str:
    if isinstance(answer, Failed):
        raise Unreachable("refused", answer.message)
    receipt = cast("dict[str, Any]", answer) if isinstance(answer, dict) else {}
    name = receipt.get("blockHash")
    if data_of(name) is None:
        raise Unreachable("garbage", "no receipt")
    return str(name)


def _receipt(answer: dict[str, Any], time_s: int | None) -> _Receipt:
    """Raises `Unreachable`."""
    number, block_hash, logs = quantity_of(answer.get("blockNumber")), data_of(answer["blockHash"]), answer.get("logs")
    if number is None or block_hash is None or time_s is None or not isinstance(logs, list):
        raise Unreachable("garbage", "no receipt")
    return _Receipt(number, block_hash, time_s, tuple(content_of(each) for each in cast("list[object]", logs)))


def _seen(name: HexString, index: int | None, receipt: _Receipt, entry: dict[str, Any]) -> SeenLog:
    """The log of a receipt. Raises `Unreachable` if the node's own log, `entry`, is another one."""
    own = content_of(entry)
    position = next((place for place, each in enumerate(receipt.logs) if each == own), None)
    if position is None or index is None or data_of(entry.get("blockHash")) != receipt.block_hash:
        raise Unreachable("garbage", "a log that its transaction does not have")
    return SeenLog(
        Address.from_raw(own.contract), tuple(map(Bytes32.from_raw, own.topics)), HexString.from_raw(own.data),
        receipt.number, Bytes32.from_raw(receipt.block_hash), receipt.time_s, Bytes32.from_raw(name.raw), index,
        position,
    )  # fmt: skip
