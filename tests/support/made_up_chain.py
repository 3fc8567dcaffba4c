"""A chain that a test makes up block by block, with nodes of it over HTTP that lie, lag, refuse or are odd."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import pytest

from chain import SECONDS_MAX
from muniment.chains import agreeing, disputes, log_reader
from muniment.chains.catalogue import Chain
from muniment.chains.disputes import Disputes
from muniment.chains.log_reader import LogReader, LogStep, SeenLog
from muniment.chains.logs import LogFilter
from muniment.chains.nodes import NodeLimits, Nodes
from muniment.outgoing import Outgoing
from muniment.protocol.evm.address import Address
from muniment.protocol.evm.hashing import keccak256
from muniment.protocol.evm.hex import Bytes32
from rpc_proxy import Reply, RpcProxy

CHAIN_ID = 8453
CONTRACT = Address.parse("0x" + "ab" * 20)
PING = Bytes32("0x" + "01" * 32)
BEGAN_S = 1_000_000
Json = dict[str, Any]
# Of a method, its parameters, and the true result: what a node answers instead.
Change = Callable[[str, list[Any], Any], Any]


@cache
def hash_of(text: str) -> str:
    return "0x" + keccak256(text.encode()).hex()


@dataclass
class MadeUpChain:
    """A chain of one block a second. A fork is another name for the blocks from some number on."""

    head: int = 100
    logs: list[Json] = field(default_factory=list[Json])
    fork_at: int | None = None
    fork: str = ""

    def hash(self, number: int) -> str:
        fork = self.fork if self.fork_at is not None and number >= self.fork_at else ""
        return hash_of(f"{fork} {number}")

    def block(self, number: int, lag: int = 0) -> Json | None:
        if not 0 <= number <= self.head - lag:
            return None
        return {
            "number": hex(number), "hash": self.hash(number), "timestamp": hex(BEGAN_S + number), "transactions": [],
        }  # fmt: skip

    def add(self, *, block: int | None = None, transaction: str = "", data: str = "0x", **members: Any) -> Json:
        """A log in a block, by default a new one on top."""
        if block is None:
            self.head += 1
            block = self.head
        index = sum(each["blockNumber"] == hex(block) for each in self.logs)
        log = {
            "address": CONTRACT.lower(), "topics": [PING], "data": data, "blockNumber": hex(block),
            "blockHash": self.hash(block), "transactionHash": transaction or hash_of(f"transaction {len(self.logs)}"),
            "logIndex": hex(index), "removed": False, **members,
        }  # fmt: skip
        self.logs.append(log)
        return log

    def answer(self, method: str, params: list[Any], lag: int = 0) -> Any:
        """What a node answers that is `lag` blocks behind."""
        head = self.head - lag
        match method:
            case "eth_chainId":
                return hex(CHAIN_ID)
            case "eth_blockNumber":
                return hex(head)
            case "eth_getBlockByNumber":
                return self.block(int(params[0], 16), lag)
            case "eth_getBlockByHash":
                numbers = (number for number in range(head, -1, -1) if self.hash(number) == params[0])
                return self.block(next(numbers, -1), lag)
            case "eth_getLogs":
                return self._logs(params[0], head)
            case "eth_getTransactionReceipt":
                logs = [each for each in self.logs if each["transactionHash"] == params[0]]
                is_there = logs and int(logs[0]["blockNumber"], 16) <= head
                return {"blockHash": logs[0]["blockHash"], "logs": logs} if is_there else None
            case _:
                raise AssertionError(method)

    def _logs(self, wanted: Json, head: int) -> list[Json]:
        first, last = int(wanted["fromBlock"], 16), min(head, int(wanted["toBlock"], 16))
        hashes = {hex(number): self.hash(number) for number in range(first, last + 1)}
        contracts = {each.lower() for each in wanted["address"]}
        return [
            each for each in self.logs
            if hashes.get(each["blockNumber"]) == each["blockHash"] and each["address"] in contracts
        ]  # fmt: skip


class MadeUpNode(RpcProxy):
    """A node of the chain. `change` may replace each result; a result that is `{"error": …}` is an error.

    `lag` says of each request how many blocks behind the node is that answers it.
    """

    def __init__(self, chain: MadeUpChain, change: Change | None = None) -> None:
        self.chain = chain
        self.change: Change = change or (lambda _method, _params, result: result)
        self.lag: Callable[[], int] = lambda: 0
        super().__init__()

    def passed_on(self, _upstream: str, calls: list[Json], _change: Any) -> Reply:  # type: ignore[override]  # no node is after it
        answers: list[Json] = []
        lag = self.lag()
        for call in calls:
            method, params = call["method"], call["params"]
            result = self.change(method, params, self.chain.answer(method, params, lag))
            is_error = isinstance(result, dict) and set(result) == {"error"}
            answers.append({"jsonrpc": "2.0", "id": call["id"], **(result if is_error else {"result": result})})
        return 200, {"content-type": "application/json"}, json.dumps(answers).encode()

    def asked(self, method: str) -> int:
        """How often a method was called."""
        return sum(call["method"] == method for calls in self.requests for call in calls)


def invents(count: int = 1, *, has_receipts: bool = False) -> Change:
    """Beside each true log there are others, which a receipt has only with `has_receipts`."""
    receipts: dict[str, Json] = {}

    def change(method: str, params: list[Any], result: Any) -> Any:
        if method == "eth_getLogs":
            made = [
                {**log, "transactionHash": hash_of(f"invented {log['blockNumber']} {place}")}
                for log in result for place in range(count)
            ]  # fmt: skip
            receipts.update({log["transactionHash"]: {"blockHash": log["blockHash"], "logs": [log]} for log in made})
            return [*result, *made]
        if method == "eth_getTransactionReceipt" and has_receipts:
            return receipts.get(params[0], result)
        return result

    return change


def omits(*, in_receipts: bool = False) -> Change:
    def change(method: str, _params: list[Any], result: Any) -> Any:
        if method == "eth_getLogs":
            return []
        if method == "eth_getTransactionReceipt" and in_receipts and result:
            return {**result, "logs": []}
        return result

    return change


@dataclass
class ReadingWorld:
    """A chain, and readers of it. The clock stands still unless a test moves it."""

    outgoing: Outgoing
    chain: MadeUpChain = field(default_factory=MadeUpChain)
    now_s: float = 1_000.0
    nodes: list[MadeUpNode] = field(default_factory=list[MadeUpNode])

    @property
    def now_ms(self) -> int:
        return 1_000 * (BEGAN_S + self.chain.head)

    def node(self, change: Change | None = None, chain: MadeUpChain | None = None) -> MadeUpNode:
        node = MadeUpNode(chain or self.chain, change)
        node.__enter__()
        self.nodes.append(node)
        return node

    def reader(self, *nodes: MadeUpNode, start: int | None = None, age_ms_max: int = 3_600_000, **members: Any) -> Read:
        """What reads from the next block on."""
        chain = Chain(CHAIN_ID, "Made up", rpc_urls=tuple(node.url for node in nodes))
        found = Nodes(
            self.outgoing, chain, now_s=lambda: self.now_s, chance=lambda: 1.0,
            limits=NodeLimits(answer_seconds_max=SECONDS_MAX),
        )  # fmt: skip
        given: dict[str, Any] = {"confirmations": 0, **members}
        shared = Disputes(nodes=found, now_ms=lambda: self.now_ms, age_ms_max=age_ms_max)
        reader = LogReader(
            nodes=found, now_ms=lambda: self.now_ms, next_block=self.chain.head + 1 if start is None else start,
            disputes=shared, **given,
        )  # fmt: skip
        return Read(reader, shared)


@dataclass
class Read:
    """A reader, and what it has read."""

    reader: LogReader
    disputes: Disputes
    logs: list[SeenLog] = field(default_factory=list[SeenLog])
    given_up: list[SeenLog] = field(default_factory=list[SeenLog])
    forks: list[int] = field(default_factory=list[int])
    filters: tuple[LogFilter, ...] = (LogFilter((CONTRACT,), ((PING,),)),)

    async def step(self) -> LogStep:
        step = await self.reader.step(self.filters)
        self.logs += step.logs
        self.given_up += step.disputed_out
        self.forks += [] if step.gone_back_to is None else [step.gone_back_to]
        return step

    async def to_head(self) -> list[int]:
        """Read to the head; the blocks of all logs that were read."""
        while not (await self.step()).at_head:
            pass
        return [log.block_number for log in self.logs]

    @property
    def failing(self) -> list[int]:
        """The numbers of the nodes that rest."""
        nodes = self.reader.nodes
        return [node.number for node in nodes.nodes if node.rests_until_s > nodes.now_s()]


@pytest.fixture
async def world(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ReadingWorld]:
    # A busy machine is slow.
    for module, name in (
        (log_reader, "GRACE_S"), (log_reader, "LOOK_S"), (disputes, "SETTLE_S"), (agreeing, "SLOW_S"),
    ):  # fmt: skip
        monkeypatch.setattr(module, name, SECONDS_MAX)
    async with Outgoing(allow_private=True, connect_seconds_max=SECONDS_MAX) as outgoing:
        made = ReadingWorld(outgoing)
        try:
            yield made
        finally:
            for node in made.nodes:
                node.__exit__()
