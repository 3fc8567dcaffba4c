"""The head of a chain that the watcher believes: a single lying or mistaken node cannot lead it far away."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from muniment.outgoing import Unreachable
from muniment.watch.nodes import Look, Node, Nodes

if TYPE_CHECKING:
    from muniment.watch.node_answers import Block

# The growth of a believed head. No chain of the catalogue makes more than 4 blocks a second (Arbitrum One).
BLOCKS_PER_SECOND: Final = 100
# Additional growth in each step, so that a stopped clock does not stop the watcher.
BLOCKS_PER_STEP: Final = 100
# The pause between two requests for the head of another node; many ranges may be read in that time.
_HEAD_FRESH_SECONDS: Final = 2.0
# The timeout for the head of another node, shorter than that of the node in use.
_OTHERS_SECONDS_MAX: Final = 5.0
# A node whose head has not grown for this long is stuck, and its head does not count.
STILL_SECONDS: Final = 120.0


class Head(NamedTuple):
    """The block up to which a chain may be read; `is_held_back`: the node named a higher one."""

    number: int
    is_held_back: bool


@dataclass(slots=True)
class _OtherHead:
    """The head of a node other than the one in use: its number, the time of the answer, and of the last growth."""

    number: int
    at_s: float
    grew_at_s: float


@dataclass(slots=True, kw_only=True)
class Heads:
    """Judges the heads that the nodes of one chain name."""

    nodes: Nodes
    now_ms: Callable[[], int]
    _believed: int | None = None
    _believed_at_s: float = 0
    _others: dict[Node, _OtherHead] = field(default_factory=dict[Node, _OtherHead])

    async def believed(self, node: Node, look: Look, newest: Block | None) -> Head:
        """The head to follow: at most the head in the `look` of `node`, and at most the second highest of all nodes.

        It grows by a limited number of blocks per second and per step, from the head that this process believed before.
        The first time it grows from the `newest` followed block, and from the time that the node gives for that block.
        """
        now_s = self.nodes.now_s()
        named = await self._named_by_two(node, look.number, followed=0 if newest is None else newest.number)
        bound = self._bound(look, newest, now_s)
        number = named if bound is None else min(named, bound)
        self._believed, self._believed_at_s = number, now_s
        return Head(number, is_held_back=number < look.number)

    def _bound(self, look: Look, newest: Block | None, now_s: float) -> int | None:
        if self._believed is not None:
            known, seconds = self._believed, now_s - self._believed_at_s
        elif newest is not None and look.time_s is not None:
            known, seconds = newest.number, self.now_ms() / 1000 - look.time_s
        else:
            return None
        return known + BLOCKS_PER_STEP + math.ceil(BLOCKS_PER_SECOND * max(0.0, seconds))

    async def _named_by_two(self, node: Node, number: int, *, followed: int) -> int:
        """`number`, or the highest head of the other nodes if that is lower.

        A node counts only if it does not rest, is not stuck, and has reached `followed`.
        """
        others = [each for each in self.nodes.nodes if each is not node]
        await asyncio.gather(*(self._ask(each) for each in others))
        now_s = self.nodes.now_s()
        heads = [self._others[each] for each in others if each in self._others and each.rests_until_s <= now_s]
        going_on = [
            each.number for each in heads if each.number >= followed and now_s - each.grew_at_s < STILL_SECONDS
        ]  # fmt: skip
        return min(number, max(going_on, default=number))

    async def _ask(self, node: Node) -> None:
        """Ask a node for its head, unless it rests or answered within `_HEAD_FRESH_SECONDS`."""
        now_s, before = self.nodes.now_s(), self._others.get(node)
        if node.rests_until_s > now_s or (before is not None and now_s - before.at_s < _HEAD_FRESH_SECONDS):
            return
        try:
            async with asyncio.timeout(_OTHERS_SECONDS_MAX):
                number = (await self.nodes.look(node)).number
        except TimeoutError:
            self.nodes.failed(node, "timeout")
        except Unreachable as error:
            self.nodes.failed(node, error.reason)
        else:
            grew_at_s = now_s if before is None or number > before.number else before.grew_at_s
            self._others[node] = _OtherHead(number, now_s, grew_at_s)
            if node.behind_since_s is None:
                self.nodes.succeeded(node)
