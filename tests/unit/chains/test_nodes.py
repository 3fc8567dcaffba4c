"""The number of blocks in one request to a node, and the rest of a failing node."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from muniment.chains.catalogue import Chain
from muniment.chains.nodes import BLOCKS_FIRST, BLOCKS_MAX, NODE_LIMITS, Nodes, Span, block_hash_in
from muniment.chains.rpc import Failed
from muniment.outgoing import Outgoing, Unreachable


def ranges(span: Span, limit: int, count: int) -> list[int]:
    """What is asked of a node that takes `limit` blocks, `count` times."""
    asked: list[int] = []
    for _ in range(count):
        asked.append(span.blocks)
        if span.blocks <= limit:
            span.fitted()
        else:
            assert span.refused(span.blocks)
    return asked


def test_ranges_grow_to_the_bound_while_the_node_takes_them() -> None:
    asked = ranges(Span(), BLOCKS_MAX, 10)
    assert asked[:4] == [BLOCKS_FIRST, 2 * BLOCKS_FIRST, 4 * BLOCKS_FIRST, 8 * BLOCKS_FIRST]
    assert asked[-1] == BLOCKS_MAX


def test_a_refused_range_is_halved() -> None:
    assert ranges(Span(), 130, 4) == [1_000, 500, 250, 125]


@given(limit=st.integers(1, BLOCKS_MAX))
def test_ranges_approach_the_limit_of_the_node_with_few_refusals(limit: int) -> None:
    span = Span()
    ranges(span, limit, 60)
    asked = ranges(span, limit, 90)
    assert max(size for size in asked if size <= limit) > limit / 2
    assert sum(size > limit for size in asked) <= 9


def test_a_larger_limit_is_noticed_after_a_while() -> None:
    span = Span()
    ranges(span, 10, 50)
    assert max(ranges(span, BLOCKS_MAX, 200)) == BLOCKS_MAX


def test_a_single_block_that_is_refused_cannot_shrink_and_says_nothing_about_two() -> None:
    span = Span(1)
    assert not span.refused(1)
    assert ranges(span, BLOCKS_MAX, 4) == [1, 2, 4, 8]


def test_two_blocks_that_were_refused_are_tried_again_before_a_chain_is_far_ahead() -> None:
    span = Span(2)
    assert span.refused(2)
    assert ranges(span, BLOCKS_MAX, 28)[-3:] == [2, 4, 8]


@pytest.fixture
async def nodes() -> Nodes:
    now = [1_000.0]
    chain = Chain(1, "One", rpc_urls=("http://first/secret", "http://second/secret"))
    return Nodes(Outgoing(allow_private=True), chain, now_s=lambda: now[0], chance=lambda: 1.0)


async def test_a_node_that_fails_rests_twice_as_long_each_time_up_to_a_minute(nodes: Nodes) -> None:
    rests: list[float] = []
    for _ in range(9):
        nodes.failed(nodes.nodes[0], "timeout")
        rests.append(nodes.nodes[0].rests_until_s - 1_000)
    assert rests == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    assert max(rests) == NODE_LIMITS.rest_seconds_max


async def test_chance_halves_a_rest_at_most(nodes: Nodes) -> None:
    nodes.chance = lambda: 0.0
    nodes.failed(nodes.nodes[0], "timeout")
    assert nodes.nodes[0].rests_until_s == 1_000.5


async def test_the_next_node_is_asked_while_the_first_rests(nodes: Nodes) -> None:
    first, second = nodes.nodes
    assert nodes.first_awake() is first
    nodes.failed(first, "timeout")
    assert nodes.first_awake() is second
    nodes.failed(second, "timeout")
    nodes.failed(second, "timeout")
    assert nodes.first_awake() is None
    assert nodes.seconds_to_wait() == 1


async def test_a_url_is_never_shown(nodes: Nodes) -> None:
    assert "secret" not in repr(nodes)


@pytest.mark.parametrize(
    ("code", "message"), [(-32000, "header not found"), (-32001, "Unknown block"), (-39001, "Block not found")]
)
def test_an_error_that_says_so_is_a_block_that_a_node_lacks(code: int, message: str) -> None:
    assert block_hash_in(Failed(code, message), 7) is None


def test_another_error_in_place_of_a_block_is_no_answer() -> None:
    for failed in (Failed(-32601, "method not found"), Failed(-32005, "block not found", fault="limit")):
        with pytest.raises(Unreachable):
            block_hash_in(failed, 7)
