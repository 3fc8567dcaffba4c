"""Answers on which two nodes of a chain agree: where several are configured, none is trusted alone."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import TYPE_CHECKING, Final, TypeVar

import structlog

from muniment.outgoing import Unreachable

if TYPE_CHECKING:
    from muniment.chains.nodes import Node, Nodes

T = TypeVar("T", bound=Hashable)

# Failures that the question may have caused: a call that takes long or answers much. The node does not rest for them.
REFUSED_CALL: Final = "refused-call"
_OF_THE_QUESTION: Final = frozenset({"too-large", REFUSED_CALL})

_log = structlog.get_logger(__name__)


class DisagreementError(Exception):
    """Nodes of a chain gave different answers, and no answer came from two of them."""


async def agreed(nodes: Nodes, ask: Callable[[Node], Awaitable[T | None]]) -> T | None:
    """The answer that two nodes give, or the one of the only node of a chain.

    `ask` gives None where a node cannot know yet. None: too few nodes knew. The nodes are asked in the operator's
    order, two at once, and further ones where these fail or differ. Raises `DisagreementError`, and `Unreachable` when
    too few nodes answer.
    """
    needed = min(2, len(nodes.nodes))
    waiting = [node for node in nodes.nodes if node.rests_until_s <= nodes.now_s()]
    votes: dict[T, int] = {}
    resting = "; ".join(f"node {node.number}: {node.told}" for node in nodes.nodes if node not in waiting and node.told)
    unknowing, failure = 0, Unreachable("resting", resting or "too few nodes of the chain are awake")
    while waiting:
        asked, waiting = waiting[:needed], waiting[needed:]
        for found in await asyncio.gather(*(_ask(nodes, node, ask) for node in asked)):
            if isinstance(found, Unreachable):
                failure = found
            elif found is None:
                unknowing += 1
            else:
                votes[found] = votes.get(found, 0) + 1
        winner = max(votes, key=lambda each: votes[each], default=None)
        if winner is not None and votes[winner] >= needed:
            return winner
    if len(votes) > 1:
        raise DisagreementError
    if sum(votes.values()) + unknowing >= needed:
        return None
    raise failure


async def _ask(nodes: Nodes, node: Node, ask: Callable[[Node], Awaitable[T | None]]) -> T | Unreachable | None:
    try:
        found = await ask(node)
    except Unreachable as error:
        if nodes.is_logged:
            _log.warning("node failed", chain=nodes.chain.id, url=node.number, reason=error.reason, text=str(error))
        node.told = error.told
        if error.reason not in _OF_THE_QUESTION:
            nodes.failed(node, error.reason)
        return error
    nodes.succeeded(node)
    return found
