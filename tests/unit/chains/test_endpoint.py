"""What is asked of a node that refuses batches, has a quota, or sends one error for all."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from each_row import each_row
from muniment.chains import rpc
from muniment.chains.catalogue import Chain
from muniment.chains.nodes import NodeLimits
from muniment.chains.rpc import CALLS_MAX, LIMITED_SECONDS_MAX, Call, Endpoint, Failed
from muniment.outgoing import ANSWER_BYTES_MAX, Outgoing, Unreachable
from muniment.relayer.runner.pinning import Pins, nodes_of
from rpc_proxy import Reply, RpcProxy

Json = Any


def replied(value: Json, status: int = 200, **fields: str) -> Reply:
    return status, {"content-type": "application/json", **fields}, json.dumps(value).encode()


def error(code: int, message: str) -> Json:
    return {"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": message}}


def answer_to(number: int) -> Json:
    return {"jsonrpc": "2.0", "id": number, "result": number}


def answered(asked: Json) -> Reply:
    """The block number that is asked for, as the result of each call."""
    results = [{"jsonrpc": "2.0", "id": each["id"], "result": each["params"][0]} for each in _listed(asked)]
    return replied(results if isinstance(asked, list) else results[0])


def _listed(asked: Json) -> list[Json]:
    return asked if isinstance(asked, list) else [asked]


@dataclass
class Node:
    """A node whose `refusal` answers what it gives a reply for; other requests are answered."""

    refusal: Callable[[Json], Reply | None]
    sizes: list[int] = field(default_factory=list[int])
    now_s: float = 1_000.0
    endpoint: Endpoint = field(init=False)

    def answer(self, asked: Json) -> Reply:
        self.sizes.append(len(asked) if isinstance(asked, list) else 0)
        return self.refusal(asked) or answered(asked)

    async def ask(self, count: int, **patience: float) -> list[Any]:
        calls = [Call("eth_getBlockByNumber", (number, False)) for number in range(count)]
        async with Outgoing(allow_private=True) as outgoing:
            return await self.endpoint.ask(
                outgoing,
                calls,
                now_s=lambda: self.now_s,
                seconds_max=60,
                bytes_max=ANSWER_BYTES_MAX,
                chain_id=1,
                **patience,
            )


@pytest.fixture
def node(request: pytest.FixtureRequest) -> Any:
    made = Node(request.param)
    with RpcProxy(answers=made.answer) as proxy:
        made.endpoint = Endpoint(f"{proxy.url}/v2/a-secret-key")
        yield made


def larger(count: int, reply: Reply | Callable[[Json], Reply]) -> Callable[[Json], Reply | None]:
    """Refuse batches with more calls than `count`."""

    def refusal(asked: Json) -> Reply | None:
        if not isinstance(asked, list) or len(asked) <= count:
            return None
        return reply(asked) if callable(reply) else reply

    return refusal


@pytest.mark.parametrize(
    "node",
    [
        larger(10, replied(error(-32600, "maximum 10 calls in 1 batch"))),
        larger(10, replied(error(-32000, "batch limit 10 exceeded: 50 requests given"))),
        larger(10, replied(error(-32602, "Invalid params"), 400)),
        larger(10, replied([{**error(-32600, "batch too large"), "id": 0}])),
        larger(10, lambda asked: replied([{**error(31, "Batch of more than 10"), "id": each["id"]} for each in asked])),
        larger(10, (413, {}, b"<html>")),
        larger(10, replied(error(-32000, "batch size"), 500)),
    ],
    ids=["object", "erigon", "status 400", "geth", "each call", "status 413", "status 500"],
    indirect=True,
)
async def test_a_refused_batch_is_halved_and_the_limit_is_remembered(node: Node) -> None:
    assert await node.ask(60) == list(range(60))
    assert node.sizes[:3] == [50, 25, 12]
    assert max(node.sizes[3:]) <= 10
    node.sizes.clear()
    assert await node.ask(60) == list(range(60))
    assert set(node.sizes) == {6}


@pytest.mark.parametrize("node", [larger(0, replied(error(-32600, "Invalid Request"), 400))], indirect=True)
async def test_a_node_that_takes_no_batch_is_asked_call_by_call(node: Node) -> None:
    assert await node.ask(3) == [0, 1, 2]
    assert node.sizes == [3, 1, 0, 0, 0]


@pytest.mark.parametrize("node", [lambda _: None], indirect=True)
async def test_batches_grow_again_slowly(node: Node) -> None:
    node.endpoint.calls_max = 6
    await node.ask(6 * 20)
    assert set(node.sizes) == {6}
    await node.ask(12 * 20 + 24 * 20 + 1)
    assert node.sizes[20:] == [12] * 20 + [24] * 20 + [1]
    await node.ask(CALLS_MAX)
    assert node.sizes[-2:] == [48, 2]


@pytest.mark.parametrize("node", [larger(10, replied(error(-32600, "maximum 10 calls in 1 batch")))], indirect=True)
async def test_a_size_that_was_refused_is_not_tried_for_long(node: Node) -> None:
    await node.ask(6 * 100)
    assert node.sizes[:4] == [50, 25, 12, 6]
    assert set(node.sizes[4:]) == {6}
    await node.ask(12)
    assert node.sizes[-3:] == [12, 6, 6]


@pytest.mark.parametrize("batch", [True, False])
@pytest.mark.parametrize("text", ["batch response too large", "response too large", "Response size exceeded"])
async def test_an_answer_that_is_too_large_says_nothing_about_batches(text: str, *, batch: bool) -> None:
    failed = error(-32003, text)
    made = Node(
        lambda asked: replied([answer_to(0), {**failed, "id": 1}] if batch else failed) if len(asked) == 2 else None
    )
    with RpcProxy(answers=made.answer) as proxy:
        made.endpoint = Endpoint(proxy.url)
        with pytest.raises(Unreachable) as caught:
            await made.ask(2)
        assert caught.value.told == f"too-large: {text}"
        assert await made.ask(3) == [0, 1, 2]
    assert made.sizes == [2, 3]


@pytest.mark.parametrize(
    "node",
    [
        lambda _: replied(error(-32005, "daily request count exceeded, request rate limited")),
        lambda _: replied(error(-32016, "over rate limit"), 429),
        lambda _: (429, {}, b"Too many requests"),
        lambda _: (403, {}, b"error: rate limit exceeded"),
        lambda asked: replied([{**error(429, "compute units exceeded"), "id": each["id"]} for each in asked]),
    ],
    indirect=True,
)
async def test_a_quota_is_a_rest_and_no_smaller_batch(node: Node) -> None:
    for _ in range(20):
        with pytest.raises(Unreachable) as caught:
            await node.ask(20)
        assert caught.value.reason == "limited"
        assert 0 < caught.value.seconds <= 1
    assert node.sizes == [20]
    for rest_s in (1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300):
        node.now_s += rest_s
        with pytest.raises(Unreachable) as caught:
            await node.ask(20)
    assert caught.value.seconds == LIMITED_SECONDS_MAX
    assert node.sizes == [20] * 12


# What is slept between calls is less than this.
SPREAD_S = 0.9


async def test_more_calls_than_a_quota_has_at_once_are_made_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock is that of the test: it moves when a rest is waited for."""
    left, slept = [2], list[float]()

    def limited(_: Json) -> Reply | None:
        left[0] -= 1
        return None if left[0] >= 0 else replied(error(-32005, "limit exceeded"), 429)

    made = Node(limited)

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        made.now_s += seconds
        left[0] = 2 if seconds > SPREAD_S else left[0]

    with RpcProxy(answers=made.answer) as proxy:
        made.endpoint = Endpoint(proxy.url, calls_max=10)
        monkeypatch.setattr("muniment.chains.rpc.asyncio", SimpleNamespace(sleep=sleep))
        assert await made.ask(95, patience_s=3) == [*range(95)]
        assert [round(each, 6) for each in slept if each > SPREAD_S] == [1, 1, 1, 1]
        # Between these rests calls are spread: ten of them take more than a tenth of a second.
        assert 0.1 < min(slept) < SPREAD_S
        left[0] = -1_000

        async def sleep_in_vain(seconds: float) -> None:
            slept.append(seconds)
            made.now_s += seconds

        monkeypatch.setattr("muniment.chains.rpc.asyncio", SimpleNamespace(sleep=sleep_in_vain))
        with pytest.raises(Unreachable) as caught:
            await made.ask(95, patience_s=3)
    assert (caught.value.reason, [round(each, 6) for each in slept[-2:]]) == ("limited", [1, 2])


async def test_calls_that_have_patience_have_their_turns_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also beside many that do not wait for theirs."""
    left, slept = [1], list[float]()

    def limited(_: Json) -> Reply | None:
        left[0] -= 1
        return replied(error(-32005, "limit exceeded"), 429) if left[0] >= 0 else None

    made = Node(limited)

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    with RpcProxy(answers=made.answer) as proxy:
        made.endpoint = Endpoint(proxy.url, calls_max=10)
        with pytest.raises(Unreachable):
            await made.ask(10)
        made.now_s += 1
        for _ in range(30):
            await made.ask(10)
        monkeypatch.setattr("muniment.chains.rpc.asyncio", SimpleNamespace(sleep=sleep))
        await made.ask(10, patience_s=60)
    assert slept == [rpc.TURN_S_MAX]


async def test_a_run_waits_for_a_quota_that_is_used_up_for_a_second() -> None:
    left = [1]

    def limited(asked: Json) -> Reply:
        left[0] -= 1
        if left[0] >= 0:
            return replied(error(-32005, "limit exceeded"), 429)
        block = {"number": "0x7", "hash": "0x" + "07" * 32, "timestamp": "0x7"}
        return replied(
            [
                {"jsonrpc": "2.0", "id": each["id"], "result": "0x1" if each["method"] == "eth_chainId" else block}
                for each in asked
            ]
        )

    with RpcProxy(answers=limited) as proxy:
        async with Outgoing(allow_private=True) as outgoing:
            chain = Chain(1, "Made up", rpc_urls=(proxy.url,))
            nodes = nodes_of(outgoing, [chain], now_s=time.monotonic, chance=lambda: 1.0)
            nodes[1].limits = NodeLimits(answer_seconds_max=60)
            assert await Pins(nodes=nodes, now_ms=lambda: 0).is_canonical(1, bytes([7]) * 32, 0)
            assert nodes[1].nodes[0].failures == 0


@pytest.mark.parametrize("node", [lambda _: (429, {}, b"")], indirect=True)
async def test_requests_that_meet_a_quota_together_make_one_rest(node: Node) -> None:
    met = await asyncio.gather(*(node.ask(1) for _ in range(16)), return_exceptions=True)
    assert all(isinstance(each, Unreachable) and each.seconds <= 1 for each in met)
    assert node.endpoint.rests_until_s == node.now_s + 1


@each_row(
    ("text", "seconds"),
    [
        ("30", 30),
        ("1000", 300),
        ("0", 1),
        ("soon", 1),
        ("Fri, 31 Dec 9999 23:59:59 GMT", 300),
        ("Sun, 06 Nov 1994 08:49:37 GMT", 1),
    ],
)
async def test_retry_after_is_kept_to_for_five_minutes_at_most(text: str, seconds: float) -> None:
    made = Node(lambda _: replied(error(-32005, "limit exceeded"), 429, **{"retry-after": text}))
    with RpcProxy(answers=made.answer) as proxy:
        made.endpoint = Endpoint(proxy.url)
        with pytest.raises(Unreachable) as caught:
            await made.ask(1)
    assert caught.value.seconds == seconds


@pytest.mark.parametrize(
    "node",
    [lambda _: replied(error(-32603, "no backend for https://up.example/K3Y: a-secret-key"), 500)],
    indirect=True,
)
async def test_one_error_for_all_is_that_of_each_call_and_has_no_key(node: Node) -> None:
    first, second = await node.ask(2)
    assert first == second == Failed(-32603, "no backend for … …")
    assert node.sizes == [2]


@pytest.mark.parametrize("node", [lambda _: replied(error(-32602, "block range too large"), 400)], indirect=True)
async def test_one_call_with_invalid_parameters_says_nothing_about_batches(node: Node) -> None:
    for _ in range(2):
        assert await node.ask(1) == [Failed(-32602, "block range too large")]
    assert node.sizes == [1, 1]


@each_row("nothing", ["", False, None])
async def test_what_is_no_error_beside_a_result_and_an_id_in_quotes_are_read_as_they_are_meant(nothing: Json) -> None:
    made = Node(
        lambda asked: replied([{**answer_to(each["id"]), "id": str(each["id"]), "error": nothing} for each in asked])
    )
    with RpcProxy(answers=made.answer) as proxy:
        made.endpoint = Endpoint(proxy.url)
        assert await made.ask(3) == [0, 1, 2]


@each_row(
    "entries",
    [
        [answer_to(0), {**answer_to(1), "id": True}],
        [answer_to(0), {**answer_to(1), "id": 1.0}],
        [answer_to(0), {**answer_to(1), "id": "01"}],
        [answer_to(0), {**answer_to(1), "id": "0"}],
        [answer_to(0), {**answer_to(1), "id": None}],
    ],
)
async def test_other_ids_are_not_those_of_the_calls(entries: Json) -> None:
    made = Node(lambda _: replied(entries))
    with RpcProxy(answers=made.answer) as proxy:
        made.endpoint = Endpoint(proxy.url)
        with pytest.raises(Unreachable):
            await made.ask(2)


@pytest.mark.parametrize("node", [lambda _: replied({"message": "Invalid a-secret-key"}, 401)], indirect=True)
async def test_a_server_before_the_node_is_quoted_without_the_key(node: Node) -> None:
    with pytest.raises(Unreachable) as caught:
        await node.ask(2)
    assert caught.value.told == "http-401: Invalid …"


@pytest.mark.parametrize("node", [lambda _: replied([{"id": 0, "result": "0x" + "ab" * 400_000}])], indirect=True)
async def test_a_large_answer_is_parsed_in_a_thread(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[threading.Thread] = []
    parse = rpc.parse_json
    monkeypatch.setattr(rpc, "parse_json", lambda data: (threads.append(threading.current_thread()), parse(data))[1])
    assert len((await node.ask(1))[0]) == 800_002
    assert threads != [threading.main_thread()]


@pytest.mark.parametrize("node", [lambda _asked: replied([0] * 100_000)], indirect=True)
async def test_a_list_that_is_far_too_long_is_not_read_to_its_end(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[object] = []
    members = vars(rpc)["_members"]
    monkeypatch.setattr(rpc, "_members", lambda value: read.append(value) or members(value))
    with pytest.raises(Unreachable, match="not that to the calls"):
        await node.ask(3)
    assert len(read) < 20


@dataclass
class Waits:
    """A node that met a quota once, so that its calls are spread; `waiting` takes the place of a wait for a turn."""

    waiting: Callable[[], Awaitable[object]]
    seconds: list[float] = field(default_factory=list[float])

    async def sleep(self, seconds: float) -> None:
        self.seconds.append(seconds)
        await self.waiting()

    @contextmanager
    def node(self, monkeypatch: pytest.MonkeyPatch, refusal: Callable[[Json], Reply | None]) -> Generator[Node]:
        limits = [replied(error(-32005, "limit exceeded"), 429)]
        made = Node(lambda asked: limits.pop() if limits else refusal(asked))
        namespace = SimpleNamespace(sleep=self.sleep, CancelledError=asyncio.CancelledError)
        with RpcProxy(answers=made.answer) as proxy, monkeypatch.context() as patch:
            made.endpoint = Endpoint(proxy.url, calls_max=10)
            patch.setattr("muniment.chains.rpc.asyncio", namespace)
            yield made

    async def meet_quota(self, made: Node) -> None:
        with pytest.raises(Unreachable):
            await made.ask(10)
        made.now_s += 1
        await made.ask(10)


async def test_calls_that_are_cancelled_give_their_turns_back(monkeypatch: pytest.MonkeyPatch) -> None:
    waits = Waits(lambda: asyncio.Event().wait())
    with waits.node(monkeypatch, lambda _: None) as made:
        await waits.meet_quota(made)
        for count in range(1, 21):
            question = asyncio.create_task(made.ask(10, patience_s=60))
            while len(waits.seconds) < count:
                await asyncio.sleep(0)
            question.cancel()
            with pytest.raises(asyncio.CancelledError):
                await question
        assert not made.endpoint.waits(made.now_s, waits.seconds[0])
    assert waits.seconds == pytest.approx([waits.seconds[0]] * 20)


async def test_a_node_is_known_to_wait_when_its_turns_are_far_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    waits = Waits(lambda: asyncio.sleep(0))
    with waits.node(monkeypatch, lambda _: None) as made:
        await waits.meet_quota(made)
        for _ in range(10):
            await made.ask(10)
        assert made.endpoint.waits(made.now_s, 1)
        assert not made.endpoint.waits(made.now_s + rpc.TURN_S_MAX, 0)


async def test_no_call_is_sent_in_a_rest_that_began_while_it_waited_for_its_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def waiting() -> None:
        made.endpoint.rests_until_s = made.now_s + 60

    waits = Waits(waiting)
    with waits.node(monkeypatch, lambda _: None) as made:
        await waits.meet_quota(made)
        made.sizes.clear()
        with pytest.raises(Unreachable) as caught:
            await made.ask(10, patience_s=3)
    assert (caught.value.reason, made.sizes) == ("limited", [])


async def test_calls_that_wait_for_their_turn_learn_that_the_node_takes_no_lists(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first one fails: that is no answer to the others."""

    async def waiting() -> None:
        made.endpoint.calls_max = 0

    def reverts(asked: Json) -> Reply | None:
        is_first = not isinstance(asked, list) and asked["params"][0] == 0
        return replied(error(3, "execution reverted")) if is_first else None

    waits = Waits(waiting)
    with waits.node(monkeypatch, reverts) as made:
        await waits.meet_quota(made)
        first, *others = await made.ask(4, patience_s=3)
    assert (type(first), others) == (Failed, [1, 2, 3])
