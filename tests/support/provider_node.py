"""A made-up chain, and nodes of it as providers run them, each with the limits and the faults that a test sets."""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any, Self

from local_server import LocalServer

Json = dict[str, Any]
# The blocks before the first request.
_PAST = 2_000
# A log is added to no block that is nearer than this: it must be there when the block is.
_MARGIN_S = 0.1
_ZERO = "0x" + "00" * 32
# A contract that needs more gas than some nodes give, how code begins that burns gas, and what calls need.
THIRSTY, _BURNING = "0x" + "7d" * 20, "0x5a5b80"
_GAS_OF_THIRSTY, _GAS_OF_BURNING, _GAS = 15_000_000, 24_900_000, 100_000
# Parts of the block that nobody reads, so that answers are as large as those of a busy chain.
_TRANSACTION = "0x" + "5b" * 32


def _digest(*parts: object) -> bytes:
    return hashlib.sha256(repr(parts).encode()).digest()


@dataclass(eq=False)
class MadeChain:
    """A chain with a block each `seconds`, by the clock of this machine; tests add logs to its next blocks."""

    id: int = 31_337
    seconds: float = 1.0
    _logs: dict[int, list[Json]] = field(default_factory=lambda: defaultdict[int, list[Json]](list))
    # The first block of each reorganisation.
    _forks: list[int] = field(default_factory=list[int])
    _block_of: dict[str, int] = field(default_factory=dict[str, int])
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def __post_init__(self) -> None:
        """Begin with blocks in the past."""
        self.began_s = int(time.time() - _PAST * self.seconds)

    def head(self, in_s: float = 0.0) -> int:
        return int((time.time() + in_s - self.began_s) / self.seconds)

    def time_s(self, number: int) -> float:
        """From when on a block is there."""
        return self.began_s + number * self.seconds

    def hash(self, number: int) -> str:
        """It ends with the number of the block."""
        version = sum(first <= number for first in self._forks)
        return f"0x{_digest(self.id, number, version)[:24].hex()}{number:016x}"

    def add(
        self, contract: str, topics: list[str], data: str = "0x", *, block: int | None = None, transaction: str = ""
    ) -> Json:
        """Add a log to a block, by default the next one; the log without what depends on forks."""
        with self._lock:
            number = self.head(_MARGIN_S) + 1 if block is None else block
            name = transaction or "0x" + _digest(self.id, number, len(self._block_of)).hex()
            log = {
                "address": contract.lower(), "topics": topics, "data": data, "blockNumber": hex(number),
                "transactionHash": name, "removed": False,
            }  # fmt: skip
            self._block_of[name] = number
            self._logs[number].append(log)
            return log

    def reorganise(self, depth: int) -> list[Json]:
        """Replace the newest `depth` blocks by empty ones; the logs that are gone."""
        with self._lock:
            head = self.head()
            self._forks.append(head - depth + 1)
            return [log for number in range(head - depth + 1, head + 1) for log in self._logs.pop(number, [])]

    def block(self, number: int) -> Json:
        return {
            "number": hex(number), "hash": self.hash(number), "parentHash": self.hash(number - 1),
            "timestamp": hex(int(self.time_s(number))), "transactions": [_TRANSACTION] * 50, "baseFeePerGas": "0x1",
        }  # fmt: skip

    def logs(self, first: int, last: int) -> Iterator[Json]:
        with self._lock:
            for number in range(first, last + 1):
                for at, log in enumerate(self._logs.get(number, ())):
                    yield {**log, "blockHash": self.hash(number), "transactionIndex": hex(at), "logIndex": hex(at)}

    def receipt(self, transaction: str) -> Json | None:
        if (number := self._block_of.get(transaction)) is None:
            return None
        logs = [each for each in self.logs(number, number) if each["transactionHash"] == transaction]
        return receipt_of(logs) if logs else None


def receipt_of(logs: list[Json]) -> Json:
    places = {name: logs[0][name] for name in ("transactionHash", "transactionIndex", "blockHash", "blockNumber")}
    return {**places, "status": "0x1", "logs": logs}


def fits(log: Json, wanted: Json) -> bool:
    """Whether a log is one of those that the parameter of `eth_getLogs` asks for (execution-apis, Filter)."""
    contracts = wanted.get("address") or [log["address"]]
    contracts = [contracts] if isinstance(contracts, str) else contracts
    topics = wanted.get("topics") or []
    return (
        log["address"] in {each.lower() for each in contracts}
        and len(log["topics"]) >= len(topics)
        and all(
            not choices or topic in ([choices] if isinstance(choices, str) else choices)
            for choices, topic in zip(topics, log["topics"], strict=False)
        )
    )


class NodeError(Exception):
    """An answer of JSON-RPC that is an error: its code and message."""


@dataclass(eq=False)
class ProviderNode:
    """A node of a chain, on a port of its own. What is None or empty is no limit; all may be changed at any time."""

    chain: MadeChain
    calls_max: int | None = None  # in a batch
    blocks_max: int | None = None  # in a range of logs
    addresses_max: int | None = None  # in a filter
    per_second: int | None = None  # calls: more are refused by status 429, and by turns by -32005 in a batch
    limits: Callable[[], bool] = lambda: False  # whether another quota is used up when a request comes
    lag: Callable[[], int] = lambda: 0  # the blocks that the backend of the next request lacks
    sleep_s: Callable[[], float] = lambda: 0.0
    rests: Callable[[], bool] = lambda: False  # whether it closes the connection in place of the next answer
    fails: Callable[[str], bool] = lambda _method: False  # whether it answers a call by -32603
    omits: Callable[[Json], bool] = lambda _log: False
    has_receipts_of_all: bool = False  # also of logs that it omits
    lacks_receipt: Callable[[str], bool] = lambda _transaction: False
    invents: list[Json] = field(default_factory=list[Json])  # logs, as `MadeChain.add` gives them
    has_invented_receipts: bool = False
    lists_removed: bool = False
    pads_quantities: bool = False  # "0x05" for "0x5"
    says_other_hash: bool = False  # of each block
    says_other_time: bool = False
    takes_hashes: bool = True  # EIP-1898
    counts_in_transactions: bool = False  # the logs, in place of those of the block
    gas_max: int | None = None  # of a call, whatever gas it asks for
    more_bytes: int = 0  # in each list of logs
    counts: Counter[str] = field(default_factory=Counter[str])
    _recent: deque[float] = field(default_factory=deque[float])
    _local: threading.local = field(default_factory=threading.local)

    def __enter__(self) -> Self:
        node = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            wbufsize = -1  # head and body in one packet

            def do_POST(self) -> None:
                if body := self.rfile.read(int(self.headers["content-length"])):  # else the client went away
                    node._reply(self, json.loads(body))

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = LocalServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _reply(self, handler: BaseHTTPRequestHandler, asked: Any) -> None:
        self.counts["requests"] += 1
        if self.rests():
            self.counts["dropped"] += 1
            handler.close_connection = True
            return
        if seconds := self.sleep_s():
            self.counts["slow"] += 1
            time.sleep(seconds)
        self._local.lag = self.lag()
        self.counts["lagging"] += self._local.lag > 0
        calls = asked if isinstance(asked, list) else [asked]
        is_over = self._is_over(len(calls))
        self.counts["over the rate"] += is_over
        if is_over and self.counts["over the rate"] % 2:
            self.counts["status 429"] += 1
            _send(handler, 429, {"error": "too many requests"}, {"retry-after": "1"})
        elif isinstance(asked, list) and self.calls_max is not None and len(calls) > self.calls_max:
            self.counts["batches refused"] += 1
            error = {"code": -32600, "message": f"maximum {self.calls_max} calls in 1 batch"}
            _send(handler, 200, {"jsonrpc": "2.0", "id": None, "error": error})
        else:
            answers = [self._answered(call, is_over=is_over) for call in calls]
            _send(handler, 200, answers if isinstance(asked, list) else answers[0])

    def _is_over(self, count: int) -> bool:
        now_s = time.monotonic()
        while self._recent and self._recent[0] < now_s - 1:
            self._recent.popleft()
        if self.limits():
            return True
        if self.per_second is not None and len(self._recent) + count > self.per_second:
            return True
        self._recent.extend([now_s] * count)
        return False

    def _answered(self, call: Json, *, is_over: bool) -> Json:
        method = call["method"]
        self.counts[method] += 1
        try:
            result = self._result(method, call.get("params") or [], is_over=is_over)
        except NodeError as error:
            code, message = error.args
            return {"jsonrpc": "2.0", "id": call["id"], "error": {"code": code, "message": message}}
        return {"jsonrpc": "2.0", "id": call["id"], "result": self._padded(result) if self.pads_quantities else result}

    def _result(self, method: str, params: list[Any], *, is_over: bool) -> Any:
        if is_over:
            self.counts["-32005"] += 1
            raise NodeError(-32005, "daily request count exceeded, request rate limited")
        if self.fails(method):
            self.counts["-32603"] += 1
            raise NodeError(-32603, "internal error")
        if method == "eth_chainId":
            return hex(self.chain.id)
        if method == "eth_blockNumber":
            return hex(self._head)
        if method == "eth_getBlockByNumber":
            return self._block(self._number(params[0]))
        if method == "eth_getBlockByHash":
            number = int(params[0][-16:], 16)
            block = self._block(number) if number <= self._head else None
            return block if block and block["hash"] == params[0] else None
        if method == "eth_getLogs":
            return self._logs(params[0])
        if method == "eth_getTransactionReceipt":
            return self._receipt(params[0])
        if method in {"eth_call", "eth_getBalance"}:
            return self._state(params)
        raise NodeError(-32601, f"the method {method} does not exist/is not available")

    @property
    def _head(self) -> int:
        return self.chain.head() - self._local.lag

    def _number(self, name: str) -> int:
        return self._head if name in {"latest", "safe", "finalized"} else int(name, 16)

    def _block(self, number: int) -> Json | None:
        if not 0 <= number <= self._head:
            return None
        block = self.chain.block(number)
        if self.says_other_hash:
            block["hash"] = f"0x{'ee' * 24}{number:016x}"
        if self.says_other_time:
            block["timestamp"] = hex(int(block["timestamp"], 16) + 7)
        return block

    def _logs(self, wanted: Json) -> list[Json]:
        first, last = self._number(wanted["fromBlock"]), self._number(wanted["toBlock"])
        contracts = wanted.get("address") or []
        self.counts["filters full"] += len(contracts) == self.addresses_max
        if self.blocks_max is not None and last - first >= self.blocks_max:
            self.counts["ranges refused"] += 1
            raise NodeError(-32602, f"query exceeds max block range {self.blocks_max}")
        if self.addresses_max is not None and isinstance(contracts, list) and len(contracts) > self.addresses_max:
            self.counts["filters refused"] += 1
            raise NodeError(-32602, f"exceeds maximum of {self.addresses_max} addresses")
        seen = [log for log in self.chain.logs(first, min(last, self._head)) if not self.omits(log)]
        seen += [
            self._placed(log) for log in self.invents if first <= int(log["blockNumber"], 16) <= min(last, self._head)
        ]
        logs = [log for log in seen if fits(log, wanted)]
        if self.counts_in_transactions:
            logs = _counted_in_transactions(logs)
        if self.lists_removed:
            self.counts["removed listed"] += len(logs)
            logs += [{**log, "removed": True, "blockHash": "0x" + "77" * 32} for log in logs]
        self.counts["large answers"] += bool(logs and self.more_bytes)
        return [{**log, "more": "0" * (self.more_bytes // len(logs))} for log in logs]

    def _placed(self, log: Json) -> Json:
        number = int(log["blockNumber"], 16)
        return {**log, "blockHash": self.chain.hash(number), "transactionIndex": "0x9", "logIndex": "0x9"}

    def _receipt(self, name: str) -> Json | None:
        invented = [self._placed(log) for log in self.invents if log["transactionHash"] == name]
        if invented:
            return receipt_of(invented) if self.has_invented_receipts else None
        receipt = self.chain.receipt(name)
        if receipt is None or int(receipt["blockNumber"], 16) > self._head or self.lacks_receipt(name):
            return None
        if not self.has_receipts_of_all and any(map(self.omits, receipt["logs"])):
            return None
        return receipt

    def _state(self, params: list[Any]) -> str:
        position = params[1]
        if isinstance(position, dict):
            if not self.takes_hashes:
                self.counts["hashes refused"] += 1
                raise NodeError(
                    -32602, "invalid argument 1: json: cannot unmarshal object into Go value of type string"
                )
            number = int(position["blockHash"][-16:], 16)
        else:
            number = self._number(position)
        if number > self._head:
            raise NodeError(-32000, "header not found")
        if isinstance(params[0], dict) and self.gas_max is not None and _gas_of(params[0]) > self.gas_max:
            self.counts["out of gas"] += 1
            raise NodeError(-32000, "out of gas")
        return _ZERO[:-2] + "07"

    def _padded(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {name: self._padded(each) if name != "data" else each for name, each in value.items()}
        if isinstance(value, list):
            return [self._padded(each) for each in value]
        return "0x0" + value[2:] if isinstance(value, str) and value[:2] == "0x" and len(value) % 2 else value


def _counted_in_transactions(logs: list[Json]) -> list[Json]:
    counts = Counter[str]()
    counted: list[Json] = []
    for log in logs:
        counted.append({**log, "logIndex": hex(counts[log["transactionHash"]])})
        counts[log["transactionHash"]] += 1
    return counted


def _gas_of(call: Json) -> int:
    """The gas that a call spends."""
    if call.get("data", "").startswith(_BURNING):
        return _GAS_OF_BURNING
    return _GAS_OF_THIRSTY if call.get("to", "").lower() == THIRSTY else _GAS


def _send(handler: BaseHTTPRequestHandler, status: int, answer: object, headers: dict[str, str] | None = None) -> None:
    content = json.dumps(answer).encode()
    handler.send_response(status)
    own = {"content-type": "application/json", "content-length": str(len(content))}
    for name, value in {**own, **(headers or {})}.items():
        handler.send_header(name, value)
    handler.end_headers()
    handler.wfile.write(content)
