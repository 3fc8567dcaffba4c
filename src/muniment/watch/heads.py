"""Which block of a chain to believe to be its newest: one node that lies, or errs, leads nobody far away."""

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

# What a head may grow: no chain of the catalogue makes more than 4 blocks a second (Arbitrum One, 0.25 s each).
BLOCKS_PER_SECOND: Final = 100
# Beside that in any step, so that a clock that stands still stops nothing.
BLOCKS_PER_STEP: Final = 100
# How long another node's word holds, in which many ranges may be read.
_TOLD_SECONDS: Final = 2.0
# A node beside the one that is read is not waited for as long as that one.
_OTHERS_SECONDS_MAX: Final = 5.0
# A node whose head has not grown for so long stands still; the others are followed without it.
STILL_SECONDS: Final = 120.0


class Head(NamedTuple):
    """The block up to which a chain may be read; `is_held_back` when the node says that there are more."""

    number: int
    is_held_back: bool


@dataclass(slots=True)
class _Told:
    """What a node beside the one that is read says."""

    number: int
    at_s: float
    grew_at_s: float


@dataclass(slots=True, kw_only=True)
class Heads:
    """Judges what the nodes of one chain say of its newest block."""

    nodes: Nodes
    now_ms: Callable[[], int]
    _believed: int | None = None
    _believed_at_s: float = 0
    _told: dict[Node, _Told] = field(default_factory=dict[Node, _Told])

    async def believed(self, node: Node, look: Look, newest: Block | None) -> Head:
        """The head to follow, at most what `node` said in its `look`, and at most the second highest of all nodes.

        It grows by so many blocks a second and a step. What this process believed before is where it grows from, and
        first of all the `newest` block that was followed, which was made at the time that the node gives it.
        """
        now_s = self.nodes.now_s()
        told = await self._told_by_two(node, look.number, followed=0 if newest is None else newest.number)
        bound = self._bound(look, newest, now_s)
        number = told if bound is None else min(told, bound)
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

    async def _told_by_two(self, node: Node, number: int, *, followed: int) -> int:
        """`number`, or less where no other node that goes on, and has what was followed, has come as far."""
        others = [each for each in self.nodes.nodes if each is not node]
        await asyncio.gather(*(self._ask(each) for each in others))
        now_s = self.nodes.now_s()
        told = [self._told[each] for each in others if each in self._told and each.rests_until_s <= now_s]
        going_on = [
            each.number for each in told if each.number >= followed and now_s - each.grew_at_s < STILL_SECONDS
        ]  # fmt: skip
        return min(number, max(going_on, default=number))

    async def _ask(self, node: Node) -> None:
        """Know what a node says that does not rest."""
        now_s, before = self.nodes.now_s(), self._told.get(node)
        if node.rests_until_s > now_s or (before is not None and now_s - before.at_s < _TOLD_SECONDS):
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
            self._told[node] = _Told(number, now_s, grew_at_s)
            if node.behind_since_s is None:
                self.nodes.succeeded(node)
