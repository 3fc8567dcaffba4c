"""Ranges of blocks, each as long as the nodes of a chain take, read until as many nodes as are needed have the same."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import structlog

from muniment.chains.agreeing import answers_in_turn
from muniment.chains.logs import BLOCK_BYTES_MAX, tell_of_odd
from muniment.chains.nodes import Node, Span
from muniment.chains.range_views import RangeView, Refusal, range_view
from muniment.outgoing import ANSWER_BYTES_MAX, Unreachable

if TYPE_CHECKING:
    from muniment.chains.logs import LogFilter
    from muniment.chains.nodes import Block, Nodes
    from muniment.chains.range_views import Times

# A range of so few blocks that a node refuses has many logs: the node's limit of blocks is higher. One that does not
# answer for them has failed.
FEW_BLOCKS: Final = 10

_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class Ranges:
    """Asks nodes of one chain for ranges; `fail` lets one rest."""

    nodes: Nodes
    fail: Callable[[Node, Unreachable], None]
    # Nodes whose last answer for a range was not waited for.
    slow: set[Node] = field(default_factory=set["Node"], init=False)
    # Whether a range was read since its reader has asked: one slow answer counts once.
    has_read: bool = field(default=False, init=False)
    _spans: dict[Node, Span] = field(default_factory=dict["Node", Span], init=False)
    # The first and last block of the range that was tried last, and what each node answered of it while others failed.
    _tried: tuple[int, int] = field(default=(-1, -1), init=False)
    _learned: dict[Node, dict[bytes, Times]] = field(default_factory=dict["Node", "dict[bytes, Times]"], init=False)

    @property
    def needed(self) -> int:
        """How many nodes must have the same."""
        return min(2, len(self.nodes.nodes))

    def last_block(self, ready: Sequence[Node], first: int, limit: int) -> int:
        """The last block of a range that as many as are needed of the nodes `ready` take, at most `limit`."""
        spans = sorted((self._span(node).blocks for node in ready), reverse=True)
        last = max(first, min(limit, first + spans[self.needed - 1] - 1))
        # The same range as in the last try, or a shorter one: then what was learned of it counts.
        if first == self._tried[0]:
            last = min(last, self._tried[1])
        self._tried = (first, last)
        return last

    def halve(self, nodes: Sequence[Node], blocks: int) -> None:
        """Ask these nodes for less than so many blocks next time."""
        for node in nodes:
            self._span(node).refused(blocks)

    def succeed(self, node: Node, view: RangeView, blocks: int) -> None:
        """Note that the view of a node counts."""
        self.nodes.succeeded(node)
        if blocks >= self._span(node).blocks:
            self._span(node).fitted()
        tell_of_odd(self.nodes, node, view.odd)

    async def views(
        self, ready: Sequence[Node], filters: Sequence[LogFilter], first: int, last: int, newest: Block | None
    ) -> tuple[list[tuple[Node, RangeView]], list[Refusal]]:
        """The first nodes that answer for the range and have the same last block, as many as are needed, or none.

        `newest` is the newest block that was read, if any. Raises `Unreachable` where too few answer.
        """
        in_turn = sorted(ready, key=lambda node: self._span(node).blocks < last - first + 1)
        parts = [part for each in filters for part in each.parts()]
        views, refusals = list[tuple[Node, RangeView]](), list[Refusal]()
        asked = {*in_turn[: self.needed]}
        failure: Unreachable | None = None
        async with aclosing(
            answers_in_turn(in_turn, self.needed, lambda node: self._view(node, parts, first, last, newest))
        ) as answers:
            async for node, answer in answers:
                asked.discard(node)
                if isinstance(answer, RangeView):
                    views.append((node, answer))
                    same = [each for each in views if each[1].last == answer.last]
                    if len(same) >= self.needed:
                        self.slow, self.has_read, self._learned = asked, True, {}
                        return same, refusals
                elif isinstance(answer, Refusal):
                    refusals.append(answer)
                else:
                    failure = answer or failure
        if failure is not None and not refusals:
            raise failure
        return [], refusals

    def _span(self, node: Node) -> Span:
        return self._spans.setdefault(node, Span())

    async def _view(
        self, node: Node, parts: Sequence[LogFilter], first: int, last: int, newest: Block | None
    ) -> RangeView | Refusal | Unreachable | None:
        """What a node has of a range. One that fails rests; one that refuses it is asked for less next time."""
        blocks = last - first + 1
        try:
            bytes_max = BLOCK_BYTES_MAX if self._span(node).blocks == 1 else ANSWER_BYTES_MAX
            view = await range_view(
                self.nodes, node, parts, first, last, bytes_max=bytes_max, newest=newest,
                learned=self._learned.setdefault(node, {}),
            )  # fmt: skip
        except Unreachable as error:
            self.fail(node, error)
            return error
        if isinstance(view, Refusal):
            may_shrink = self._span(node).refused(blocks) and (blocks > FEW_BLOCKS or not view.is_late)
            if not may_shrink and not view.is_error:
                error = Unreachable(view.reason)
                self.fail(node, error)
                return error
            _log.info("a node refuses a range", url=node.number, blocks=blocks, reason=view.reason)
        return view
