"""Ranges of a chain's logs, with block hashes that prove one history, and the rollback after a fork."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from muniment.chains.nodes import BEHIND, Block
from muniment.chains.rpc import Call, Failed
from muniment.outgoing import Unreachable
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


@dataclass(frozen=True, slots=True)
class LogContent:
    """A log without its place: its contract of 20 bytes, topics of 32 each, data, and its index in its block."""

    contract: bytes
    topics: tuple[bytes, ...]
    data: bytes
    index: int


def content_of(entry: object) -> LogContent:
    """The content of a log in an answer of a node. Raises `Unreachable`."""
    log = cast("dict[str, Any]", entry) if isinstance(entry, dict) else {}
    contract, data, index = data_of(log.get("address")), data_of(log.get("data")), quantity_of(log.get("logIndex"))
    given = log.get("topics")
    topics = [data_of(each) or b"" for each in cast("list[object]", given)] if isinstance(given, list) else [b""]
    are_topics = len(topics) <= _TOPICS_MAX and all(len(each) == _HASH_BYTES for each in topics)
    if contract is None or len(contract) != _ADDRESS_BYTES or data is None or index is None or not are_topics:
        raise Unreachable("garbage", "no log")
    return LogContent(contract, tuple(topics), data, index)


class Range(NamedTuple):
    """The logs of a range, its last block, and further blocks of the range to keep (`marks`), lowest first."""

    logs: list[Any]
    last: Block
    marks: list[Block]


async def read_range(
    nodes: Nodes, node: Node, wanted: Sequence[LogFilter], first: int, last: int, *, newest: Block | None, head: int
) -> Range | None:
    """Read the blocks from `first` to `last`; None when these are too many for the node.

    The last block and the `newest` followed block must have the same hash before and after the read: then all logs are
    of one chain. A log that several filters want is there several times. Raises `Unreachable`.
    """
    (before,) = await nodes.hashes(node, [last])
    logs = await _read_logs(nodes, node, wanted, first, last)
    if before is None:
        raise Unreachable(BEHIND)
    if logs is None:
        return None
    contracts = {contract.raw for each in wanted for contract in each.contracts}
    blocks = blocks_of(logs, contracts, first, last)
    if blocks.get(last, before) != before:
        raise Unreachable("garbage", "a log is not of the block that it names")
    known = {**blocks, last: before, **({newest.number: newest.hash} if newest else {})}
    depths = [last - depth for depth in reversed(_MARKS) if last == head and last - depth >= first]
    numbers = list(dict.fromkeys((*known, *depths)))
    hashes = dict(zip(numbers, await nodes.hashes(node, numbers), strict=True))
    if any(hashes[number] != block_hash for number, block_hash in known.items()):
        raise Unreachable("moving", "the chain changed while it was read")
    marks = [Block(number, block_hash) for number in depths if (block_hash := hashes[number]) is not None]
    return Range(logs, Block(last, before), marks)


async def _read_logs(nodes: Nodes, node: Node, wanted: Sequence[LogFilter], first: int, last: int) -> list[Any] | None:
    """The answers to `eth_getLogs` for a range; None when the range is too large for the node. Raises `Unreachable`."""
    blocks = last - first + 1
    try:
        answers = await nodes.ask(node, [Call("eth_getLogs", (each.params(first, last),)) for each in wanted])
    except Unreachable as error:
        if not _may_be_size(error.reason):
            raise
        smaller = node.span.refused(blocks)
        if not smaller or error.reason.startswith("http-5"):
            raise
        return None
    for answer in answers:
        if isinstance(answer, Failed):
            if node.span.refused(blocks):
                return None
            raise Unreachable("refused", answer.message)
        if not isinstance(answer, list):
            raise Unreachable("garbage", "no list of logs")
    if blocks >= node.span.blocks:
        node.span.fitted()
    return [log for answer in answers for log in cast("list[Any]", answer)]


def _may_be_size(reason: str) -> bool:
    """Whether a request may have failed because its range was too large.

    Status 429 limits the rate of requests; smaller ranges would only mean more of them.
    """
    return reason in {"timeout", "too-large"} or (reason.startswith(("http-4", "http-5")) and reason != "http-429")


def blocks_of(logs: Sequence[Any], contracts: set[bytes], first: int, last: int) -> dict[int, bytes]:
    """The hashes of the logs' blocks, by number. Raises `Unreachable` for a log that does not match the request."""
    blocks: dict[int, bytes] = {}
    for entry in logs:
        log = cast("dict[str, Any]", entry) if isinstance(entry, dict) else {}
        number, block_hash = quantity_of(log.get("blockNumber")), data_of(log.get("blockHash"))
        fits = (
            data_of(log.get("address")) in contracts
            and number is not None
            and first <= number <= last
            and block_hash is not None
            and len(block_hash) == _HASH_BYTES
            and len(data_of(log.get("transactionHash")) or b"") == _HASH_BYTES
            and quantity_of(log.get("logIndex")) is not None
            and not log.get("removed")
        )
        if not fits or number is None or block_hash is None or blocks.setdefault(number, block_hash) != block_hash:
            raise Unreachable("garbage", "a log that was not asked for")
    return blocks


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
