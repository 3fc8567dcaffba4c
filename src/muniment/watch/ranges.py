"""Reads a range of blocks from one node: the settlers' events, and hashes which prove that all are of one chain."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from muniment.chains.rpc import Call, Failed
from muniment.outgoing import Unreachable
from muniment.watch.events import TOPICS, SettlerEvent, event_in
from muniment.watch.node_answers import Block, blocks_of, may_be_size
from muniment.watch.nodes import BEHIND

if TYPE_CHECKING:
    from muniment.evm.address import Address
    from muniment.watch.nodes import Node, Nodes


# Depths below the head at which blocks are kept, besides the last block of each range, so that a short reorganisation
# takes back few facts.
_MARKS: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Range(NamedTuple):
    """The events of a range, its last block, and further blocks of the range to keep (`marks`), lowest first."""

    events: list[SettlerEvent]
    last: Block
    marks: list[Block]


async def read_range(
    nodes: Nodes, node: Node, settlers: Sequence[Address], first: int, last: int, *, newest: Block | None, head: int
) -> Range | None:
    """Read the blocks from `first` to `last`; None when these are too many for the node.

    The last block and the `newest` followed block must have the same hash before and after the read: then all logs are
    of one chain. Raises `Unreachable`.
    """
    (before,) = await nodes.hashes(node, [last])
    logs = await _read_logs(nodes, node, settlers, first, last)
    if before is None:
        raise Unreachable(BEHIND)
    if logs is None:
        return None
    blocks = blocks_of(logs, settlers, first, last)
    if blocks.get(last, before) != before:
        raise Unreachable("garbage", "a log is not of the block that it names")
    known = {**blocks, last: before, **({newest.number: newest.hash} if newest else {})}
    depths = [last - depth for depth in reversed(_MARKS) if last == head and last - depth >= first]
    numbers = list(dict.fromkeys((*known, *depths)))
    hashes = dict(zip(numbers, await nodes.hashes(node, numbers), strict=True))
    if any(hashes[number] != block_hash for number, block_hash in known.items()):
        raise Unreachable("moving", "the chain changed while it was read")
    events = [event for event in map(event_in, logs) if event is not None]
    marks = [Block(number, block_hash) for number in depths if (block_hash := hashes[number]) is not None]
    return Range(events, Block(last, before), marks)


async def _read_logs(nodes: Nodes, node: Node, settlers: Sequence[Address], first: int, last: int) -> list[Any] | None:
    """The answer to `eth_getLogs` for a range; None when the range is too large for the node. Raises `Unreachable`."""
    wanted = {
        "address": list(settlers), "fromBlock": hex(first), "toBlock": hex(last), "topics": [list(TOPICS)],
    }  # fmt: skip
    blocks = last - first + 1
    try:
        (answer,) = await nodes.ask(node, [Call("eth_getLogs", (wanted,))])
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
