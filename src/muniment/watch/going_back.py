"""How far to go back after a reorganisation: to a block that the registry has kept and the chain still has."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from muniment.watch.heads import BLOCKS_PER_SECOND
from muniment.watch.nodes import CALLS_MAX, Node, Nodes
from muniment.watch.progress import first_known, kept_blocks, registry_age_s

if TYPE_CHECKING:
    from muniment.chains.catalogue import Chain
    from muniment.storage.database import Transaction, Work
    from muniment.watch.node_answers import Block


async def last_common(
    nodes: Nodes, node: Node, fetch: Callable[[Work[list[Block]]], Awaitable[list[Block]]]
) -> int | None:
    """The number of the newest kept block that the node also has, or None. Raises `Unreachable`."""
    below: int | None = None
    while True:
        kept = await fetch(lambda tx, below=below: kept_blocks(tx, nodes.chain.id, below=below, limit=CALLS_MAX))
        if not kept:
            return None
        for block, found in zip(kept, await nodes.hashes(node, [each.number for each in kept]), strict=True):
            if found == block.hash:
                return block.number
        below = kept[-1].number


async def first_to_follow(tx: Transaction, chain: Chain, head: int, now_ms: int) -> int:
    """The block to follow from when the chain has none of the kept blocks, so that no wrong block stays kept.

    It is the configured block, or the lowest block with a fact or a kept hash if that is lower. A lowest block above
    `head` proves nothing. If neither is known, following begins so far back that no event since the registry's first
    day is lost.
    """
    lowest = await first_known(tx, chain.id)
    known = [chain.settler_block, lowest if lowest is not None and lowest <= head else None]
    made_since = int(BLOCKS_PER_SECOND * await registry_age_s(tx, now_ms))
    return min((each for each in known if each is not None), default=max(0, head - made_since))
