"""The RPC nodes of a chain: their ranges and rests, checks of their answers, and the head of the chain."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from muniment.chains import rpc
from muniment.chains.rpc import Call, Endpoint, Failed, check_given
from muniment.chains.verdicts import lacks_block
from muniment.outgoing import ANSWER_BYTES_MAX, SMALL_ANSWER_BYTES_MAX, Outgoing, Unreachable
from muniment.protocol.evm.hex import data_of, quantity_of

if TYPE_CHECKING:
    from muniment.chains.catalogue import Chain

_HASH_BYTES: Final = 32
# Most public nodes allow this range; hosted nodes document 10 (Alchemy, free) to 10,000 (QuickNode) blocks.
BLOCKS_FIRST: Final = 1_000
BLOCKS_MAX: Final = 10_000
CALLS_MAX: Final = rpc.CALLS_MAX
# After this many accepted ranges, a refused size is tried again: the node or its quota may have changed.
_FITTED_MAX: Final = 100
# After so many where that is all that was taken: a chain may make four blocks a second.
_FITTED_OF_FEW_MAX: Final = 25
_VERY_FEW_BLOCKS: Final = 2
# The reason of a failure: the node lacks blocks that another node had.
BEHIND: Final = "behind"
# As in a chains file: databases and JSON hold numbers up to this one exactly.
BLOCK_MAX: Final = 2**53 - 1
# The growth of a trusted head. No chain of the catalogue makes more than 4 blocks a second (Arbitrum One).
BLOCKS_PER_SECOND: Final = 100
# Additional growth in each step, so that a stopped clock does not stop its follower.
BLOCKS_PER_STEP: Final = 100
# The pause between two requests for the head of another node; many ranges may be read in that time.
_HEAD_FRESH_SECONDS: Final = 2.0
# The timeout for the head of another node, shorter than that of the node in use.
_OTHERS_SECONDS_MAX: Final = 5.0
# Rests of a node, for its quota, that a range waits for between two answers.
_PATIENCE_S: Final = 3.0
_PATIENCE_S_MAX: Final = 60.0
_TWO: Final = 2
# A node whose head has not grown for this long is stuck, and its head does not count.
STILL_SECONDS: Final = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeLimits:
    """Limits of requests to nodes. Times are seconds."""

    # A node that fails rests for 1, 2, 4 … 60 seconds: an outage of minutes costs a request a minute.
    rest_seconds_first: float = 1.0
    rest_seconds_max: float = 60.0
    # The time of one request to a node.
    answer_seconds_max: float = 20.0
    # A node that lacks followed blocks may lag while its machine starts. When all nodes lack them for this long, the
    # node that reported these blocks lied.
    behind_seconds: float = 180.0
    # A node that fails for this long counts as behind, so that the others are trusted.
    silent_seconds: float = 1_800.0


NODE_LIMITS: Final = NodeLimits()


@dataclass(slots=True)
class Span:
    """The number of blocks to ask a node for.

    It doubles while the node accepts ranges, and halves when it refuses one; then it approaches the refused size.
    """

    blocks: int = BLOCKS_FIRST
    _refused: int = BLOCKS_MAX + 1
    _fitted: int = 0

    def fitted(self) -> None:
        """Note that the node accepted a range of this size."""
        self._fitted += 1
        if self._fitted >= (_FITTED_OF_FEW_MAX if self.blocks <= _VERY_FEW_BLOCKS else _FITTED_MAX):
            self._refused, self._fitted = BLOCKS_MAX + 1, 0
        known_bound = self._refused <= BLOCKS_MAX
        between = max(self.blocks, (self.blocks + self._refused) // 2)
        self.blocks = min(2 * self.blocks, between if known_bound else BLOCKS_MAX)

    def refused(self, blocks: int) -> bool:
        """Note that the node refused a range of `blocks`; False if no smaller range exists."""
        # Of one block its logs were too many, and not the blocks.
        self._refused, self._fitted = blocks if blocks > 1 else BLOCKS_MAX + 1, 0
        self.blocks = max(1, blocks // 2)
        return blocks > 1


@dataclass(slots=True, eq=False)
class Node:
    """An RPC URL and its record. Logs have its number among the chain's URLs, because a URL may have a key."""

    number: int
    url: str = field(repr=False)
    endpoint: Endpoint = field(init=False, repr=False)
    span: Span = field(default_factory=Span)
    failures: int = 0
    failing_since_s: float | None = None
    behind_since_s: float | None = None
    rests_until_s: float = 0
    is_checked: bool = False
    # What its last failure was, with its own sentence.
    told: str = ""
    # Whether it gives a call less gas than was asked: then a call that runs out of gas is not the contract's failure.
    is_short_of_gas: bool = False

    def __post_init__(self) -> None:
        """Begin without knowledge of what the node takes."""
        self.endpoint = Endpoint(self.url)


class Look(NamedTuple):
    """An answer of a node: the number of its newest block, and hash and time (Unix seconds) of the requested block."""

    number: int
    hash: bytes | None = None
    time_s: int | None = None


@dataclass(slots=True)
class Nodes:
    """The nodes of a chain. `now_s` is a clock that only goes forward; `chance` gives numbers from 0 to 1.

    `is_logged`: each failure of a node is a line of the log, as a program that runs for long wants it. `quota_s`: how
    long a question waits for a node whose quota is used up.
    """

    outgoing: Outgoing
    chain: Chain
    now_s: Callable[[], float]
    chance: Callable[[], float]
    limits: NodeLimits = NODE_LIMITS
    is_logged: bool = True
    quota_s: float = 0
    nodes: list[Node] = field(init=False)

    def __post_init__(self) -> None:
        """Begin with a clean record for each node."""
        self.nodes = [Node(number, url) for number, url in enumerate(self.chain.rpc_urls, 1)]

    def first_awake(self) -> Node | None:
        """The first node in the operator's order that does not rest."""
        return next((node for node in self.nodes if node.rests_until_s <= self.now_s()), None)

    def seconds_to_wait(self) -> float:
        """Seconds until the first node ends its rest."""
        return max(0.0, min(node.rests_until_s for node in self.nodes) - self.now_s())

    def failed(self, node: Node, reason: str) -> None:
        """Let the node rest: longer each time, with a random part, so that processes do not return to it together.

        One whose quota is used up rests as long as it says, however many requests have met that.
        """
        now_s = self.now_s()
        if reason == "limited" and node.rests_until_s > now_s:
            return
        rest = min(self.limits.rest_seconds_max, self.limits.rest_seconds_first * 2 ** min(node.failures, 16))
        node.failures += 1
        node.failing_since_s = now_s if node.failing_since_s is None else node.failing_since_s
        if reason == BEHIND and node.behind_since_s is None:
            node.behind_since_s = now_s
        node.rests_until_s = max(now_s + rest * (0.5 + self.chance() / 2), node.endpoint.rests_until_s)

    @staticmethod
    def succeeded(node: Node) -> None:
        """Clear the failures of the node, because it gave a good answer."""
        node.failures, node.failing_since_s, node.behind_since_s = 0, None, None

    def all_behind(self) -> bool:
        """Whether all nodes have lacked the followed blocks for minutes; a failing node counts after half an hour."""
        return all(
            self._is_past(node.behind_since_s, self.limits.behind_seconds)
            or self._is_past(node.failing_since_s, self.limits.silent_seconds)
            for node in self.nodes
        )

    def _is_past(self, since_s: float | None, seconds: float) -> bool:
        return since_s is not None and self.now_s() - since_s >= seconds

    @property
    def patience_s(self) -> float:
        """How long to wait for the quota of a node, in a range of many calls: longer if no other can take its place."""
        return _PATIENCE_S if len(self.nodes) > _TWO else _PATIENCE_S_MAX

    async def ask(
        self, node: Node, calls: Sequence[Call], *, bytes_max: int = ANSWER_BYTES_MAX, patience_s: float | None = None
    ) -> list[Any]:
        """The answers to `calls`, in as many requests as needed, each answered with at most `bytes_max`.

        A node whose quota is used up is waited for, `quota_s` by default, see `Endpoint.ask`. Raises `Unreachable`,
        also for a node of another chain.
        """
        patience_s = self.quota_s if patience_s is None else patience_s
        if not node.is_checked:
            (chain_id,) = await self._ask(node, [Call("eth_chainId")], SMALL_ANSWER_BYTES_MAX, patience_s)
            check_given(chain_id)
            if quantity_of(chain_id) != self.chain.id:
                self.outgoing.node_metrics.node_failed(self.chain.id)
                raise Unreachable("wrong-chain" if quantity_of(chain_id) is not None else "garbage")
            node.is_checked = True
        return await self._ask(node, calls, bytes_max, patience_s)

    async def _ask(self, node: Node, calls: Sequence[Call], bytes_max: int, patience_s: float) -> list[Any]:
        return await node.endpoint.ask(
            self.outgoing, calls, now_s=self.now_s, seconds_max=self.limits.answer_seconds_max, bytes_max=bytes_max,
            patience_s=patience_s, chain_id=self.chain.id,
        )  # fmt: skip

    async def look(self, node: Node, block: int | None = None) -> Look:
        """Ask a node for the number of its newest block, and for the hash and time of `block`. Raises `Unreachable`."""
        calls = [Call("eth_blockNumber")]
        if block is not None:
            calls.append(Call("eth_getBlockByNumber", (hex(block), False)))
        number, *blocks = await self.ask(node, calls)
        check_given(number)
        if (newest := quantity_of(number)) is None or newest > BLOCK_MAX:
            raise Unreachable("garbage", "no block number")
        if block is None:
            return Look(newest)
        return Look(newest, block_hash_in(blocks[0], block), block_time_in(blocks[0]))

    async def hashes(self, node: Node, numbers: Sequence[int]) -> list[bytes | None]:
        """The hashes of blocks; None for a block that the node lacks. Raises `Unreachable`."""
        answers = await self.ask(node, [Call("eth_getBlockByNumber", (hex(number), False)) for number in numbers])
        return [block_hash_in(answer, number) for answer, number in zip(answers, numbers, strict=True)]


class Head(NamedTuple):
    """The block up to which a chain may be read; `is_held_back`: the node reported a higher block."""

    number: int
    is_held_back: bool


@dataclass(slots=True)
class _OtherHead:
    """The head of a node other than the one in use: its number, the time of the answer, and of the last growth."""

    number: int
    at_s: float
    grew_at_s: float


@dataclass(slots=True, kw_only=True)
class Heads:
    """The head of a chain that a follower trusts: no single lying or mistaken node can lead it far away."""

    nodes: Nodes
    now_ms: Callable[[], int]
    _trusted: int | None = None
    _trusted_at_s: float = 0
    _others: dict[Node, _OtherHead] = field(default_factory=dict[Node, _OtherHead])

    async def trusted(self, node: Node, look: Look, newest: Block | None) -> Head:
        """The head to follow: at most the head in the `look` of `node`, and at most the second highest of all nodes.

        It grows by a limited number of blocks per second and per step, from the head that this process trusted before.
        The first time it grows from the `newest` followed block, and from the time of that block at the node.
        """
        now_s = self.nodes.now_s()
        named = await self._reported_by_two(node, look.number, followed=0 if newest is None else newest.number)
        bound = self._bound(look, newest, now_s)
        number = named if bound is None else min(named, bound)
        self._trusted, self._trusted_at_s = number, now_s
        return Head(number, is_held_back=number < look.number)

    def _bound(self, look: Look, newest: Block | None, now_s: float) -> int | None:
        if self._trusted is not None:
            known, seconds = self._trusted, now_s - self._trusted_at_s
        elif newest is not None and look.time_s is not None:
            known, seconds = newest.number, self.now_ms() / 1000 - look.time_s
        else:
            return None
        return known + BLOCKS_PER_STEP + math.ceil(BLOCKS_PER_SECOND * max(0.0, seconds))

    async def _reported_by_two(self, node: Node, number: int, *, followed: int) -> int:
        """`number`, or the highest head of the other nodes if that is lower.

        A node counts only if it does not rest, is not stuck, and has reached `followed`.
        """
        others = [each for each in self.nodes.nodes if each is not node]
        await asyncio.gather(*(self._ask(each) for each in others))
        now_s = self.nodes.now_s()
        heads = [self._others[each] for each in others if each in self._others and each.rests_until_s <= now_s]
        growing = [each.number for each in heads if each.number >= followed and now_s - each.grew_at_s < STILL_SECONDS]
        return min(number, max(growing, default=number))

    async def _ask(self, node: Node) -> None:
        """Ask a node for its head, unless it rests or answered within `_HEAD_FRESH_SECONDS`."""
        now_s, before = self.nodes.now_s(), self._others.get(node)
        if node.rests_until_s > now_s or (before is not None and now_s - before.at_s < _HEAD_FRESH_SECONDS):
            return
        try:
            async with asyncio.timeout(_OTHERS_SECONDS_MAX):
                number = (await self.nodes.look(node)).number
        except TimeoutError:
            self.nodes.failed(node, "timeout")
        except Unreachable as error:
            self.nodes.failed(node, error.reason)
        else:
            grew_at_s = now_s if before is None or number > before.number else before.grew_at_s
            self._others[node] = _OtherHead(number, now_s, grew_at_s)
            if node.behind_since_s is None:
                self.nodes.succeeded(node)


@dataclass(frozen=True, slots=True)
class Block:
    """The number and hash of a block, as a node reported them."""

    number: int
    hash: bytes


def is_missing(answer: object) -> bool:
    """Whether the node lacks the block that it was asked for. Raises `Unreachable` for another error."""
    if answer is None or (isinstance(answer, Failed) and answer.fault == "node" and lacks_block(answer.message)):
        return True
    check_given(answer)
    return False


def block_hash_in(answer: object, number: int) -> bytes | None:
    """The hash in an answer to `eth_getBlockByNumber`; None when the node lacks the block. Raises `Unreachable`."""
    if is_missing(answer):
        return None
    block = cast("dict[str, Any]", answer) if isinstance(answer, dict) else {}
    found = data_of(block.get("hash"))
    if found is None or len(found) != _HASH_BYTES or quantity_of(block.get("number")) != number:
        raise Unreachable("garbage", "no block")
    return found


def block_number_in(answer: object) -> int | None:
    """The block's number in an answer to `eth_getBlockByNumber`; None when the answer has none."""
    block = cast("dict[str, Any]", answer) if isinstance(answer, dict) else {}
    return quantity_of(block.get("number"))


def block_time_in(answer: object) -> int | None:
    """The block's time in an answer to `eth_getBlockByNumber`, in Unix seconds; None when the answer has none."""
    block = cast("dict[str, Any]", answer) if isinstance(answer, dict) else {}
    return quantity_of(block.get("timestamp"))
