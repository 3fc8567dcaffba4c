"""Nodes without a usable answer: each failure has one word for it, and after five the node is left alone."""

from __future__ import annotations

import json
import time
from dataclasses import replace

import pytest

from muniment.chains.catalogue import Chain
from muniment.chains.reading import ReadingState, read_chain
from muniment.outgoing import ANSWER_BYTES_MAX, Outgoing, Unreachable
from muniment.protocol.evm.address import Address
from ports import free_port
from rpc_proxy import Reply, RpcProxy

WALLET = Address.parse("0x" + "a1" * 20)
CHAIN = Chain(8453, "Local")


async def refused(url: str, state: ReadingState | None = None, *, allow_private: bool = True) -> str:
    known = state or ReadingState(lambda: 0.0)
    chain = replace(CHAIN, rpc_urls=(url,))
    async with Outgoing(allow_private=allow_private) as outgoing:
        with pytest.raises(Unreachable) as refusal:
            await read_chain(outgoing, chain, WALLET, [WALLET], [], seconds_max=600, state=known)
    assert "127.0.0.1" not in str(refusal.value)
    assert "127.0.0.1" not in repr(known)
    return refusal.value.reason


def batch(*results: object) -> bytes:
    return json.dumps([{"jsonrpc": "2.0", "id": n, "result": result} for n, result in enumerate(results)]).encode()


HEADER = {"number": "0x1", "timestamp": "0x2"}


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        pytest.param((500, {}, b""), "http-500", id="server error"),
        pytest.param((429, {}, b""), "limited", id="too many requests"),
        pytest.param((302, {"location": "http://169.254.169.254/"}, b""), "http-302", id="redirect"),
        pytest.param((200, {}, b"<html>"), "garbage", id="HTML"),
        pytest.param((200, {}, b"[" * 100_000), "garbage", id="deep nesting"),
        pytest.param((200, {}, b'{"error": {"code": -32600}}'), "refused", id="no batch"),
        pytest.param((200, {}, b"[1, 2, 3]"), "garbage", id="batch of numbers"),
        pytest.param((200, {}, b'[{"id": []}, {"id": 1}, {"id": 2}]'), "garbage", id="an id that is a list"),
        pytest.param((200, {}, b'[{"id": 0}, {"id": true}, {"id": 2}]'), "garbage", id="an id that is true"),
        pytest.param((200, {}, batch("0x2105", HEADER)), "garbage", id="an answer missing"),
        pytest.param((200, {}, batch("0x2105", HEADER, "0x", "0x")), "garbage", id="an answer too many"),
        pytest.param((200, {}, batch("8453", HEADER, "0x")), "garbage", id="chain id in decimal"),
        pytest.param((200, {}, batch("0x2105", None, "0x")), "garbage", id="no block"),
        pytest.param((200, {}, batch("0x1", HEADER, "0x")), "wrong-chain", id="another chain"),
        pytest.param((200, {}, b" " * (ANSWER_BYTES_MAX + 1)), "too-large", id="too large"),
    ],
)
async def test_an_invalid_answer_has_one_word_for_it(reply: Reply, reason: str) -> None:
    with RpcProxy(reply=reply) as node:
        assert await refused(node.url) == reason


async def test_a_dead_node_is_unreachable() -> None:
    assert await refused(f"http://127.0.0.1:{free_port()}") == "unreachable"


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]", "2130706433", "0x7f.1"])
async def test_nothing_is_sent_to_this_machine_unless_that_is_allowed(host: str) -> None:
    with RpcProxy(reply=(200, {}, b"")) as node:
        url = node.url.replace("127.0.0.1", host)
        assert await refused(url, allow_private=False) == "forbidden-address"
        assert node.requests == []


async def test_a_node_that_failed_five_times_is_left_alone_for_half_a_minute() -> None:
    now = [100.0]
    state = ReadingState(lambda: now[0])
    with RpcProxy(reply=(503, {}, b"")) as node:
        for _ in range(7):
            assert await refused(node.url, state) == "http-503"
        assert len(node.requests) == 5
        now[0] += 31
        assert await refused(node.url, state) == "http-503"
        assert len(node.requests) == 6


async def test_a_chain_without_urls_is_unreachable() -> None:
    began = time.monotonic()
    async with Outgoing(allow_private=True) as outgoing:
        with pytest.raises(Unreachable):
            await read_chain(outgoing, CHAIN, WALLET, [], [], seconds_max=600, state=ReadingState(lambda: 0.0))
    assert time.monotonic() - began < 60
