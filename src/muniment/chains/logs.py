"""Logs of a chain as nodes list them: requests, ranges with block hashes that prove one history, and what is odd.

What is certain is read leniently, and one odd log is passed over: it must not stop the range that it is listed in.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

import structlog

from muniment.chains.nodes import BEHIND, BLOCK_MAX, Block, is_missing
from muniment.chains.rpc import Call, Failed
from muniment.outgoing import ANSWER_BYTES_MAX, Unreachable
from muniment.protocol.evm.hex import data_of, quantity_of

if TYPE_CHECKING:
    from muniment.chains.nodes import Node, Nodes
    from muniment.protocol.evm.address import Address
    from muniment.protocol.evm.hex import Bytes32

# Depths below the head at which blocks are kept, besides the last block of each range, so that a short reorganisation
# takes back few facts.
_MARKS: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256)
_HASH_BYTES: Final = 32
_ADDRESS_BYTES: Final = 20
# Yellow Paper, section 4.4.1.
_TOPICS_MAX: Final = 4
# Contracts, and values of one position, in one request: providers refuse more.
VALUES_MAX: Final = 1_000
# A node whose answer has so many entries, of which none is a log, gives no logs: it fails.
_GARBAGE_MIN: Final = 10
# One block cannot be asked for in parts, so its answer may be larger, once it was refused.
BLOCK_BYTES_MAX: Final = 4 * ANSWER_BYTES_MAX
# So many entries that are no logs are no accident, whatever else is in the list, which may have millions.
_MALFORMED_MAX: Final = 1_000
# More entries are read in a thread: ten thousand take a tenth of a second.
_READ_AT_ONCE: Final = 500

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class LogFilter:
    """The wanted logs of `eth_getLogs`: those of some contracts, with one of the choices at each place of the topics.

    An empty choice takes every topic, as in execution-apis, schema FilterTopics.
    """

    contracts: tuple[Address, ...]
    topics: tuple[tuple[Bytes32, ...], ...] = ()

    def params(self, first: int, last: int) -> dict[str, Any]:
        """The parameter of `eth_getLogs` for the blocks from `first` to `last`."""
        return {
            "address": list(self.contracts), "fromBlock": hex(first), "toBlock": hex(last),
            "topics": [list(choices) or None for choices in self.topics],
        }  # fmt: skip

    def parts(self) -> Iterator[LogFilter]:
        """Filters that nodes accept, of at most `VALUES_MAX` contracts and values of a position each.

        Together they take the same logs, each of them once.
        """
        places = [_pieces(choices) if choices else [()] for choices in self.topics]
        for contracts in _pieces(self.contracts):
            for topics in product(*places):
                yield LogFilter(contracts, topics)

    def taker(self) -> Callable[[ChainLog], bool]:
        """What says of a log whether the filter asks for it."""
        contracts = {each.raw for each in self.contracts}
        places = [{each.raw for each in choices} for choices in self.topics]

        def takes(log: ChainLog) -> bool:
            return (
                log.contract in contracts
                and len(log.topics) >= len(places)
                and all(not place or topic in place for topic, place in zip(log.topics, places, strict=False))
            )

        return takes


def _pieces(values: Sequence[Any]) -> list[tuple[Any, ...]]:
    return [tuple(values[at : at + VALUES_MAX]) for at in range(0, len(values), VALUES_MAX)]


@dataclass(frozen=True, slots=True)
class LogContent:
    """A log without its place: its contract of 20 bytes, topics of 32 each, data, and its index in its block."""

    contract: bytes
    topics: tuple[bytes, ...]
    data: bytes
    index: int


class ChainLog(NamedTuple):
    """A log with its place, in raw bytes. Two nodes have the same log when all of it is the same.

    `place` is its index among the logs of its block; some nodes count in the transaction.
    """

    block_number: int
    block_hash: bytes
    transaction_hash: bytes
    place: int
    contract: bytes
    topics: tuple[bytes, ...]
    data: bytes

    def entry(self) -> dict[str, Any]:
        """The log as execution-apis, schema Log, has it."""
        return {
            "address": "0x" + self.contract.hex(), "topics": ["0x" + each.hex() for each in self.topics],
            "data": "0x" + self.data.hex(), "blockNumber": hex(self.block_number),
            "blockHash": "0x" + self.block_hash.hex(), "transactionHash": "0x" + self.transaction_hash.hex(),
            "logIndex": hex(self.place),
        }  # fmt: skip


class BlockFacts(NamedTuple):
    """Number, hash and time (Unix seconds) of a block, as a node reports them."""

    number: int
    hash: bytes
    time_s: int


def number_of(result: object) -> int | None:
    """The number of a hex quantity; None for others, and above 2^53 - 1."""
    number = quantity_of(result)
    return number if number is not None and number <= BLOCK_MAX else None


def block_in(answer: object) -> BlockFacts | None:
    """The block in an answer of a node; None where the node lacks it. Raises `Unreachable` for what is no block."""
    if is_missing(answer):
        return None
    block = cast("dict[str, Any]", answer) if isinstance(answer, dict) else {}
    number, time_s = number_of(block.get("number")), number_of(block.get("timestamp"))
    block_hash = _hash_of(block.get("hash"))
    if number is None or time_s is None or block_hash is None:
        raise Unreachable("garbage", "no block")
    return BlockFacts(number, block_hash, time_s)


def content_of(entry: object) -> LogContent:
    """The content of a log in an answer of a node. Raises `Unreachable`."""
    content = _content_of(cast("dict[str, Any]", entry) if isinstance(entry, dict) else {})
    if content is None:
        raise Unreachable("garbage", "no log")
    return content


def _content_of(log: dict[str, Any]) -> LogContent | None:
    contract, data, index = data_of(log.get("address")), data_of(log.get("data")), number_of(log.get("logIndex"))
    values = log.get("topics")
    topics = [_hash_of(each) for each in cast("list[object]", values)] if isinstance(values, list) else [None]
    if contract is None or len(contract) != _ADDRESS_BYTES or data is None or index is None:
        return None
    words = tuple(each for each in topics if each is not None)
    return LogContent(contract, words, data, index) if len(words) == len(topics) <= _TOPICS_MAX else None


def _hash_of(result: object) -> bytes | None:
    raw = data_of(result)
    return raw if raw is not None and len(raw) == _HASH_BYTES else None


def log_in(entry: object) -> ChainLog | None:
    """The log in an element of an answer to `eth_getLogs`; None for what is no log of a block."""
    log = cast("dict[str, Any]", entry) if isinstance(entry, dict) else {}
    content, number = _content_of(log), number_of(log.get("blockNumber"))
    block_hash, transaction_hash = _hash_of(log.get("blockHash")), _hash_of(log.get("transactionHash"))
    if content is None or number is None or block_hash is None or transaction_hash is None:
        return None
    return ChainLog(
        number, block_hash, transaction_hash, content.index, content.contract, content.topics, content.data
    )  # fmt: skip


async def read_logs(
    answer: list[Any], wanted: LogFilter, first: int, last: int, odd: Counter[str]
) -> list[ChainLog]:  # fmt: skip
    """As `logs_in`; a long answer keeps nobody waiting."""
    if len(answer) <= _READ_AT_ONCE:
        return logs_in(answer, wanted, first, last, odd)
    return await asyncio.to_thread(logs_in, answer, wanted, first, last, odd)


def logs_in(
    answer: list[Any], wanted: LogFilter, first: int, last: int, odd: Counter[str]
) -> list[ChainLog]:  # fmt: skip
    """The logs in an answer to `wanted`, each once; others are counted in `odd`. Raises `Unreachable` for none at all.

    Odd is a log that was taken back (`removed`), that is malformed, or that was not asked for.
    """
    logs, takes = dict[ChainLog, None](), wanted.taker()
    malformed = 0
    for entry in answer:
        log = log_in(entry)
        if isinstance(entry, dict) and cast("dict[str, Any]", entry).get("removed") not in (None, False):
            odd["removed"] += 1
        elif log is None:
            malformed += 1
            if malformed > _MALFORMED_MAX:
                raise Unreachable("garbage", "a list with much that is no log")
        elif not first <= log.block_number <= last or not takes(log):
            odd["unasked"] += 1
        else:
            logs[log] = None
    is_garbage = malformed >= _GARBAGE_MIN or not any(isinstance(each, dict) for each in answer)
    if answer and malformed == len(answer) and is_garbage:
        raise Unreachable("garbage", "a list of what is no log")
    odd["malformed"] += malformed
    return list(logs)


class LogsAnswer(NamedTuple):
    """What a node answers for a range: the hash of the last block before and after, and the answer between.

    The answer is a list, or the refusal of the node.
    """

    before: bytes | None
    logs: list[Any] | Failed
    after: bytes | None


async def ask_logs(
    nodes: Nodes, node: Node, wanted: LogFilter, first: int, last: int, bytes_max: int = ANSWER_BYTES_MAX,
    newest: Block | None = None,
) -> LogsAnswer:  # fmt: skip
    """Ask for the logs of the blocks from `first` to `last`, between two questions for the last block.

    All are one request, so that one of several nodes behind a URL answers all. A node that does not have the block
    `newest`, if one is given, has no last block of this chain. Raises `Unreachable`.
    """
    mark = Call("eth_getBlockByNumber", (hex(last), False))
    calls = [mark, Call("eth_getLogs", (wanted.params(first, last),)), mark]
    if newest is not None:
        calls.append(Call("eth_getBlockByNumber", (hex(newest.number), False)))
    before, answer, after, *others = await nodes.ask(node, calls, bytes_max=bytes_max, patience_s=nodes.patience_s)
    if newest is not None and ((other := block_in(others[0])) is None or other.hash != newest.hash):
        return LogsAnswer(None, [], None)
    marks = [block_in(each) for each in (before, after)]
    if any(mark is not None and mark.number != last for mark in marks):
        raise Unreachable("garbage", "another block")
    if not isinstance(answer, list | Failed):
        if all(mark is None for mark in marks):
            answer = []
        else:
            raise Unreachable("garbage", "no list of logs")
    return LogsAnswer(marks[0] and marks[0].hash, cast("list[Any] | Failed", answer), marks[1] and marks[1].hash)


class Range(NamedTuple):
    """The logs of a range, its last block, and further blocks of the range to keep (`marks`), lowest first."""

    logs: list[Any]
    last: Block
    marks: list[Block]


async def read_range(
    nodes: Nodes, node: Node, wanted: LogFilter, first: int, last: int, *, newest: Block | None, head: int
) -> Range | None:
    """Read the blocks from `first` to `last`; None when these are too many for the node.

    The last block and the `newest` followed block must have the same hash before and after the read: then all logs are
    of one chain, and one whose block has another hash is passed over. Raises `Unreachable`.
    """
    answer = await _read_logs(nodes, node, wanted, first, last)
    if answer is None:
        return None
    before, entries = answer
    odd = Counter[str]()
    logs = await read_logs(entries, wanted, first, last, odd)
    depths = [last - depth for depth in reversed(_MARKS) if last == head and last - depth >= first]
    own = {last: before, **({newest.number: newest.hash} if newest else {})}
    numbers = list(dict.fromkeys((*own, *(log.block_number for log in logs), *depths)))
    hashes = dict(zip(numbers, await nodes.hashes(node, numbers), strict=True))
    is_known = all(hashes[log.block_number] is not None for log in logs)
    if not is_known or any(hashes[number] != block_hash for number, block_hash in own.items()):
        raise Unreachable("moving", "the chain changed while it was read")
    canonical = [log for log in logs if hashes[log.block_number] == log.block_hash]
    odd["elsewhere"] += len(logs) - len(canonical)
    tell_of_odd(nodes, node, odd)
    marks = [Block(number, block_hash) for number in depths if (block_hash := hashes[number]) is not None]
    return Range([log.entry() for log in canonical], Block(last, before), marks)


def tell_of_odd(nodes: Nodes, node: Node, odd: Counter[str]) -> None:
    """Log how many logs of a node are passed over, by what is odd about them."""
    kinds = {kind: count for kind, count in odd.items() if count}
    if kinds:
        _log.warning("odd logs are passed over", chain=nodes.chain.id, url=node.number, **kinds)


async def _read_logs(
    nodes: Nodes, node: Node, wanted: LogFilter, first: int, last: int
) -> tuple[bytes, list[Any]] | None:
    """The hash of the last block and the logs; None when the range is too large for the node. Raises `Unreachable`."""
    blocks = last - first + 1
    try:
        before, answer, after = await ask_logs(nodes, node, wanted, first, last)
    except Unreachable as error:
        if not may_be_size(error.reason):
            raise
        smaller = node.span.refused(blocks)
        if not smaller or error.reason.startswith("http-5"):
            raise
        return None
    if before is None:
        raise Unreachable(BEHIND)
    if isinstance(answer, Failed):
        if node.span.refused(blocks):
            return None
        raise Unreachable("refused", answer.message)
    if before != after:
        raise Unreachable("moving", "the chain changed while it was read")
    if blocks >= node.span.blocks:
        node.span.fitted()
    return before, answer


def may_be_size(reason: str) -> bool:
    """Whether a request may have failed because its range was too large.

    Status 429 limits the rate of requests; smaller ranges would only mean more of them.
    """
    return reason in {"timeout", "too-large"} or (reason.startswith(("http-4", "http-5")) and reason != "http-429")


async def last_common(nodes: Nodes, node: Node, kept: Callable[[int | None], Awaitable[list[Block]]]) -> int | None:
    """The number of the newest kept block that the node also has, or None. Raises `Unreachable`.

    `kept` gives the newest kept blocks, newest first, or those below a number; it gives none at the end.
    """
    below: int | None = None
    while blocks := await kept(below):
        for block, found in zip(blocks, await nodes.hashes(node, [each.number for each in blocks]), strict=True):
            if found == block.hash:
                return block.number
        below = blocks[-1].number
    return None
