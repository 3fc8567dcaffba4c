"""Answers on which two nodes of a chain agree: where several are configured, none is trusted alone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Hashable, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Final, TypeVar

import structlog

from muniment.outgoing import Unreachable

if TYPE_CHECKING:
    from muniment.chains.nodes import Node, Nodes

T = TypeVar("T", bound=Hashable)
A = TypeVar("A")

# A node that is slower is not waited for where another can answer.
SLOW_S: float = 1.0
# The time of one question, of some requests.
AGREED_S: float = 30.0
# A rest as after one to three failures in a row. It is waited for where too few nodes are awake: a question that was
# never asked has not failed.
REST_S: float = 5.0

# Failures that the question may have caused: a call that takes long or answers much. The node does not rest for them.
REFUSED_CALL: Final = "refused-call"
_OF_THE_QUESTION: Final = frozenset({"too-large", REFUSED_CALL})

_log = structlog.get_logger(__name__)


class DisagreementError(Exception):
    """Nodes of a chain gave different answers, and no answer came from two of them."""


async def answers_in_turn(
    nodes: Sequence[Node], count: int, ask: Callable[[Node], Awaitable[A]]
) -> AsyncGenerator[tuple[Node, A]]:
    """The answers of `nodes` as they come. Close it: what is still asked then is not waited for.

    The first `count` are asked at once, then one more whenever all have answered or one is slow.
    """
    waiting, tasks, more = [*nodes], dict[asyncio.Task[A], "Node"](), count
    try:
        while waiting or tasks:
            for node in waiting[:more]:
                tasks[asyncio.create_task(_answer_of(ask(node)))] = node
            del waiting[:more]
            done, _ = await asyncio.wait(
                tasks, timeout=SLOW_S if waiting else None, return_when=asyncio.FIRST_COMPLETED
            )  # fmt: skip
            for task in [each for each in tasks if each in done]:
                yield tasks.pop(task), task.result()
            more = 0 if tasks and done else 1
    finally:
        for task in tasks:
            task.cancel()


async def _answer_of(question: Awaitable[A]) -> A:
    return await question


async def agreed(nodes: Nodes, ask: Callable[[Node], Awaitable[T | None]]) -> T | None:
    """The answer that two nodes give, or the one of the only node of a chain.

    `ask` gives None where a node cannot know yet. None: too few nodes knew. The nodes are asked in the operator's
    order, those that a quota holds up last, two at once, and further ones where these fail, differ or are slow; a short
    rest of too many is waited for. Raises `DisagreementError`, and `Unreachable` when too few nodes answer within
    `AGREED_S`.
    """
    needed = min(2, len(nodes.nodes))
    await _wait_for_rests(nodes, needed)
    now_s = nodes.now_s()
    in_turn = sorted(nodes.nodes, key=lambda node: node.endpoint.waits(now_s, SLOW_S))
    awake = [node for node in in_turn if node.rests_until_s <= now_s]
    votes: dict[T, int] = {}
    resting = "; ".join(f"node {node.number}: {node.told}" for node in nodes.nodes if node not in awake and node.told)
    unknowing, failure = 0, Unreachable("resting", resting or "too few nodes of the chain are awake")
    try:
        async with (
            asyncio.timeout(AGREED_S),
            aclosing(answers_in_turn(awake, needed, lambda node: _ask(nodes, node, ask))) as answers,
        ):
            async for _, found in answers:
                if isinstance(found, Unreachable):
                    failure = found
                elif found is None:
                    unknowing += 1
                else:
                    votes[found] = votes.get(found, 0) + 1
                    if votes[found] >= needed:
                        return found
    except TimeoutError:
        failure = Unreachable("timeout", f"no answer of {needed} nodes in {AGREED_S:.0f} seconds")
    if len(votes) > 1:
        raise DisagreementError
    if sum(votes.values()) + unknowing >= needed:
        return None
    raise failure


async def _wait_for_rests(nodes: Nodes, needed: int) -> None:
    """Wait until so many nodes are awake, at most `REST_S`; not at all where they rest longer."""
    rest_s = sorted(node.rests_until_s for node in nodes.nodes)[needed - 1] - nodes.now_s()
    if 0 < rest_s <= REST_S:
        await asyncio.sleep(rest_s)


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
