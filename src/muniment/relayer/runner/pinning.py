"""The block at which a run reads a chain, so that a run has one right answer and anybody can repeat it.

It is the highest block whose time is not after the second of the run, once a later block is seen and enough blocks
are on top of it; for an event, the event's block. A chain that makes no blocks is read at its head if two nodes agree.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeVar

from msgspec import UNSET

from muniment.chains.agreeing import DisagreementError, agreed
from muniment.chains.nodes import BEHIND, BLOCK_MAX, NodeLimits, Nodes, block_hash_in, block_number_in, block_time_in
from muniment.chains.rpc import Call, check_given
from muniment.outgoing import Unreachable
from muniment.protocol.evm.hex import Bytes32
from muniment.protocol.runs.types import RunBlock

if TYPE_CHECKING:
    from muniment.chains.catalogue import Chain
    from muniment.chains.nodes import Node
    from muniment.outgoing import Outgoing

T = TypeVar("T", bound=Hashable)
PIN_CONFIRMATIONS: Final = 1
# The time of one request to a node for a run.
CALL_SECONDS_MAX: Final = 5.0
# A run that failed whenever a quota is used up would come back with all others, and use it up again.
_QUOTA_S: Final = 3.0
# No chain of the catalogue pauses for as long while it works.
QUIET_SECONDS: Final = 120
# Pins of one relayer: each second of each chain is looked for once, however many runs are due then.
_PINS_KEPT: Final = 1_024
# Blocks in one request of a search: each may take 100 KB, and answers are read up to 8 MiB.
_ASKED_AT_ONCE: Final = 8


class Incomplete(Exception):
    """A run that cannot be made now, and is tried again: `code` is one of the reasons of `incomplete`."""

    def __init__(self, code: Literal["no-block", "no-answer", "nodes-differ"], text: str) -> None:
        super().__init__(code, text)
        self.code: Final = code
        self.text = text


class Pin(NamedTuple):
    """A block at which a run reads a chain; `time_s` is its time, `is_quiet` that its chain made no blocks."""

    chain_id: int
    number: int
    hash: bytes
    time_s: int
    is_quiet: bool = False

    def block(self) -> RunBlock:
        """The block as a record of a run has it."""
        quiet = True if self.is_quiet else UNSET
        return RunBlock(chain_id=self.chain_id, number=self.number, hash=Bytes32.from_raw(self.hash), quiet=quiet)


class _Block(NamedTuple):
    number: int
    hash: bytes
    time_s: int


def nodes_of(
    outgoing: Outgoing,
    chains: Iterable[Chain],
    *,
    now_s: Callable[[], float],
    chance: Callable[[], float],
    is_logged: bool = True,
) -> dict[int, Nodes]:
    """The nodes of those of `chains` that have any, by chain; the other arguments are those of `Nodes`."""
    limits = NodeLimits(answer_seconds_max=CALL_SECONDS_MAX)
    return {
        chain.id: Nodes(
            outgoing, chain, now_s=now_s, chance=chance, limits=limits, is_logged=is_logged, quota_s=_QUOTA_S
        )
        for chain in chains
        if chain.rpc_urls
    }


@dataclass(slots=True, kw_only=True)
class Pins:
    """Finds the blocks for the runs of one relayer. `nodes` has the chains that it may read, `now_ms` is its time."""

    nodes: Mapping[int, Nodes]
    now_ms: Callable[[], int]
    confirmations: int = PIN_CONFIRMATIONS
    _found: OrderedDict[tuple[int, int], asyncio.Task[Pin]] = field(
        default_factory=OrderedDict[tuple[int, int], "asyncio.Task[Pin]"]
    )

    async def pin(self, chain_id: int, second: int) -> Pin:
        """The block of a chain for a second (Unix time). Raises `Incomplete`; `KeyError` for a chain without nodes.

        Callers that want the same block share one search, and a found block is kept.
        """
        key, nodes = (chain_id, second), self.nodes[chain_id]
        task = self._found.get(key)
        if task is None or (task.done() and (task.cancelled() or task.exception() is not None)):
            task = self._found[key] = asyncio.create_task(self._search(nodes, second))
            task.add_done_callback(lambda done: done.cancelled() or done.exception())  # callers may have gone
            while len(self._found) > _PINS_KEPT:
                self._found.popitem(last=False)
        # Shielded: a cancelled run must not cancel the search of others.
        return await asyncio.shield(task)

    def forget(self, pin: Pin) -> None:
        """Look for a block again next time, because nodes do not have this one any more."""
        for key, task in list(self._found.items()):
            if task.done() and not task.cancelled() and task.exception() is None and task.result() == pin:
                del self._found[key]

    async def pin_event(self, chain_id: int, block_hash: bytes) -> Pin:
        """The block of an event. Raises `Incomplete`, also when the block is not canonical."""
        nodes = self.nodes[chain_id]
        pin = await agreed_answer(nodes, lambda node: _canonical(nodes, node, block_hash, 0), "the event's block")
        if pin is None or pin.number < 0:
            raise Incomplete("no-block", f"chain {chain_id} does not have the block of the event now")
        return pin

    async def is_canonical(self, chain_id: int, block_hash: bytes, time_s: int) -> bool:
        """Whether a block with this time is on its chain now.

        Raises `Incomplete` when nodes cannot say, because their heads are not later than the block, or differ.
        """
        nodes = self.nodes[chain_id]
        pin = await agreed_answer(
            nodes, lambda node: _canonical(nodes, node, block_hash, time_s), "the block of the event"
        )
        if pin is None:
            raise Incomplete("no-block", f"nodes of chain {chain_id} have not come to the block of the event again")
        return pin.number >= 0

    async def pin_number(self, chain_id: int, number: int) -> Pin:
        """The block with a number. Raises `Incomplete`."""
        nodes = self.nodes[chain_id]

        async def ask(node: Node) -> Pin | None:
            (block,) = await _blocks(nodes, node, [number])
            return None if block is None else Pin(chain_id, *block)

        pin = await agreed_answer(nodes, ask, f"block {number}")
        if pin is None:
            raise Incomplete("no-block", f"chain {chain_id} has no block {number} yet")
        return pin

    async def block_after(self, chain_id: int, second: int) -> int:
        """The number of the first block after a second (Unix time), which may not be there yet. Raises `Incomplete`."""
        nodes = self.nodes[chain_id]

        async def ask(node: Node) -> Pin:
            head = await _head(nodes, node)
            block = head if head.time_s <= second else await _highest_until(nodes, node, head, second)
            return Pin(chain_id, *(block or _Block(-1, b"", 0)))

        pin = await agreed_answer(nodes, ask, "the first block after a time")
        assert pin is not None  # noqa: S101 - `ask` never gives None
        return pin.number + 1

    async def _search(self, nodes: Nodes, second: int) -> Pin:
        chain_id = nodes.chain.id
        pin = await agreed_answer(nodes, lambda node: self._pin_at(nodes, node, second), "the block of the run")
        if pin is None:
            raise Incomplete("no-block", f"chain {chain_id} has no confirmed block after the time of the run yet")
        if pin.is_quiet and len(nodes.nodes) == 1:
            raise Incomplete("no-block", f"chain {chain_id} makes no blocks, and only one node is configured for it")
        return pin

    async def _pin_at(self, nodes: Nodes, node: Node, second: int) -> Pin | None:
        """The block as one node sees it; None: it does not know it yet. Raises `Unreachable`."""
        head = await _head(nodes, node)
        is_quiet = self.now_ms() // 1_000 - head.time_s >= QUIET_SECONDS
        if head.time_s <= second:
            return Pin(nodes.chain.id, *head, is_quiet=True) if is_quiet else None
        block = await _highest_until(nodes, node, head, second)
        if block is None:
            return None
        if head.number - block.number >= self.confirmations:
            return Pin(nodes.chain.id, *block)
        return Pin(nodes.chain.id, *block, is_quiet=True) if is_quiet else None


async def agreed_answer(nodes: Nodes, ask: Callable[[Node], Awaitable[T | None]], what: str) -> T | None:
    """The answer of two nodes, as `chains.agreeing.agreed` counts them; None: too few nodes know it yet.

    Raises `Incomplete` when too few nodes answer, or they differ about `what`.
    """
    try:
        return await agreed(nodes, ask)
    except DisagreementError:
        raise Incomplete("nodes-differ", f"nodes of chain {nodes.chain.id} differ about {what}") from None
    except Unreachable as error:
        text = f"too few nodes of chain {nodes.chain.id} answer ({error.told})"
        raise Incomplete("no-answer", text) from None


async def _canonical(nodes: Nodes, node: Node, block_hash: bytes, time_s: int) -> Pin | None:
    """The block with a hash; its number is -1 if the node's chain does not have it. Raises `Unreachable`.

    None: the node lacks it, and may lag: its head is not later than `time_s`, or it lacks the block by its number. One
    URL may lead to nodes of which some lag, also within one question.
    """
    elsewhere = Pin(nodes.chain.id, -1, block_hash, 0)
    by_hash = Call("eth_getBlockByHash", ("0x" + block_hash.hex(), False))
    answer, head = (await nodes.ask(node, [by_hash]))[0], None
    if answer is None:
        answer, head = await nodes.ask(node, [by_hash, Call("eth_getBlockByNumber", ("latest", False))])
    check_given(answer)
    if answer is None:
        head_s = block_time_in(head)
        return None if head_s is None or head_s <= time_s else elsewhere
    number = block_number_in(answer)
    if number is None:
        raise Unreachable("garbage", "no block")
    (block,) = await _blocks(nodes, node, [number])
    if block is None:
        return None
    return Pin(nodes.chain.id, *block) if block.hash == block_hash else elsewhere


async def _highest_until(nodes: Nodes, node: Node, head: _Block, second: int) -> _Block | None:
    """The highest block with a time of at most `second`, where `head` is later; None: the chain began later.

    Times of blocks never fall, so the search first doubles its distance from the head, and then divides what is left.
    Raises `Unreachable`.
    """
    above, below, distance = head, None, 1
    while below is None:
        steps = [distance << place for place in range(_ASKED_AT_ONCE)]
        numbers = sorted({max(0, head.number - step) for step in steps}, reverse=True)
        above, below = await _narrowed(nodes, node, numbers, above, below, second)
        if below is None and numbers[-1] == 0:
            return None
        distance <<= _ASKED_AT_ONCE
    while above.number - below.number > 1:
        width = above.number - below.number
        parts = min(width, _ASKED_AT_ONCE + 1)
        numbers = [below.number + width * part // parts for part in range(parts - 1, 0, -1)]
        above, below = await _narrowed(nodes, node, numbers, above, below, second)
        assert below is not None  # noqa: S101 - it only grows
    return below


async def _narrowed(
    nodes: Nodes, node: Node, numbers: Sequence[int], above: _Block, below: _Block | None, second: int
) -> tuple[_Block, _Block | None]:
    """The lowest known block after `second` and the highest one before, with those of `numbers`, highest first."""
    for block in await _blocks(nodes, node, numbers):
        if block is None:
            raise Unreachable(BEHIND, "the node lacks a block under its head")
        if block.time_s > second:
            above = min(above, block)
        else:
            below = block if below is None else max(below, block)
    return above, below


async def _head(nodes: Nodes, node: Node) -> _Block:
    """The newest block of a node. Raises `Unreachable`."""
    (answer,) = await nodes.ask(node, [Call("eth_getBlockByNumber", ("latest", False))])
    check_given(answer)
    number = block_number_in(answer)
    if number is None or number > BLOCK_MAX:
        raise Unreachable("garbage", "no block")
    return _block(answer, number)


async def _blocks(nodes: Nodes, node: Node, numbers: Sequence[int]) -> list[_Block | None]:
    """Blocks of a node by number, None for one that it lacks. Raises `Unreachable`."""
    answers = await nodes.ask(node, [Call("eth_getBlockByNumber", (hex(number), False)) for number in numbers])
    return [
        None if block_hash_in(answer, number) is None else _block(answer, number)
        for answer, number in zip(answers, numbers, strict=True)
    ]


def _block(answer: object, number: int) -> _Block:
    block_hash, time_s = block_hash_in(answer, number), block_time_in(answer)
    if block_hash is None or time_s is None:
        raise Unreachable("garbage", "no block")
    return _Block(number, block_hash, time_s)
