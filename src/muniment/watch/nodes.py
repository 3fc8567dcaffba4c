"""The RPC nodes of one chain: which to ask now, how many blocks each allows in a range, and how long each rests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from muniment.chains.rpc import Call, ask
from muniment.evm.hex import quantity_of
from muniment.outgoing import ANSWER_BYTES_MAX, Outgoing, Unreachable
from muniment.watch.limits import WATCH_LIMITS, WatchLimits
from muniment.watch.node_answers import block_hash_in, block_time_in

if TYPE_CHECKING:
    from muniment.chains.catalogue import Chain

# Most public nodes allow this range; hosted nodes document 10 (Alchemy, free) to 10,000 (QuickNode) blocks.
BLOCKS_FIRST: Final = 1_000
BLOCKS_MAX: Final = 10_000
# After this many accepted ranges, a refused size is tried again: the node or its quota may have changed.
_FITTED_MAX: Final = 100
# Calls in one request. A block comes with the hashes of its transactions, some 100 KB; answers are read up to 8 MiB.
CALLS_MAX: Final = 50
# The reason of a failure: the node lacks blocks that another node had.
BEHIND: Final = "behind"
# As in a chains file: databases and JSON hold numbers up to this one exactly.
BLOCK_MAX: Final = 2**53 - 1


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
        if self._fitted >= _FITTED_MAX:
            self._refused, self._fitted = BLOCKS_MAX + 1, 0
        known_bound = self._refused <= BLOCKS_MAX
        between = max(self.blocks, (self.blocks + self._refused) // 2)
        self.blocks = min(2 * self.blocks, between if known_bound else BLOCKS_MAX)

    def refused(self, blocks: int) -> bool:
        """Note that the node refused a range of `blocks`; False if no smaller range exists."""
        self._refused, self._fitted = max(2, blocks), 0
        self.blocks = max(1, blocks // 2)
        return blocks > 1


@dataclass(slots=True, eq=False)
class Node:
    """One RPC URL and its record. Logs name it by its place among the chain's URLs, because a URL may have a key."""

    place: int
    url: str = field(repr=False)
    span: Span = field(default_factory=Span)
    failures: int = 0
    failing_since_s: float | None = None
    behind_since_s: float | None = None
    rests_until_s: float = 0
    is_checked: bool = False


class Look(NamedTuple):
    """An answer of a node: the number of its newest block, and hash and time (Unix seconds) of the requested block."""

    number: int
    hash: bytes | None = None
    time_s: int | None = None


@dataclass(slots=True)
class Nodes:
    """The nodes of a chain. `now_s` is a clock that only goes forward; `chance` gives numbers from 0 to 1."""

    outgoing: Outgoing
    chain: Chain
    now_s: Callable[[], float]
    chance: Callable[[], float]
    limits: WatchLimits = WATCH_LIMITS
    nodes: list[Node] = field(init=False)

    def __post_init__(self) -> None:
        """Begin with a clean record for each node."""
        self.nodes = [Node(place, url) for place, url in enumerate(self.chain.rpc_urls, 1)]

    def first_awake(self) -> Node | None:
        """The first node in the operator's order that does not rest."""
        return next((node for node in self.nodes if node.rests_until_s <= self.now_s()), None)

    def seconds_to_wait(self) -> float:
        """Seconds until the first node ends its rest."""
        return max(0.0, min(node.rests_until_s for node in self.nodes) - self.now_s())

    def failed(self, node: Node, reason: str) -> None:
        """Let the node rest: longer each time, with a random part, so that processes do not return to it together."""
        now_s = self.now_s()
        rest = min(self.limits.rest_seconds_max, self.limits.rest_seconds_first * 2 ** min(node.failures, 16))
        node.failures += 1
        node.failing_since_s = now_s if node.failing_since_s is None else node.failing_since_s
        if reason == BEHIND and node.behind_since_s is None:
            node.behind_since_s = now_s
        node.rests_until_s = now_s + rest * (0.5 + self.chance() / 2)

    @staticmethod
    def succeeded(node: Node) -> None:
        """Clear the failures of the node, because it gave a good answer."""
        node.failures, node.failing_since_s, node.behind_since_s = 0, None, None

    def all_behind(self) -> bool:
        """Whether all nodes have lacked the followed blocks for minutes; a failing one counts after half an hour."""
        return all(
            self._is_past(node.behind_since_s, self.limits.behind_seconds)
            or self._is_past(node.failing_since_s, self.limits.silent_seconds)
            for node in self.nodes
        )

    def _is_past(self, since_s: float | None, seconds: float) -> bool:
        return since_s is not None and self.now_s() - since_s >= seconds

    async def ask(self, node: Node, calls: Sequence[Call]) -> list[Any]:
        """The answers to `calls`, in as many requests as needed.

        Raises `Unreachable`, also for a node of another chain.
        """
        seconds_max = self.limits.answer_seconds_max
        if not node.is_checked:
            (chain_id,) = await ask(
                self.outgoing, node.url, [Call("eth_chainId")], seconds_max=seconds_max, chain_id=self.chain.id
            )
            if quantity_of(chain_id) != self.chain.id:
                self.outgoing.node_metrics.node_failed(self.chain.id)
                raise Unreachable("wrong-chain" if quantity_of(chain_id) is not None else "garbage")
            node.is_checked = True
        answers: list[Any] = []
        for at in range(0, len(calls), CALLS_MAX):
            answers += await ask(
                self.outgoing, node.url, calls[at : at + CALLS_MAX],
                seconds_max=seconds_max, bytes_max=ANSWER_BYTES_MAX, chain_id=self.chain.id,
            )  # fmt: skip
        return answers

    async def look(self, node: Node, block: int | None = None) -> Look:
        """Ask a node for the number of its newest block, and for the hash and time of `block`. Raises `Unreachable`."""
        calls = [Call("eth_blockNumber")]
        if block is not None:
            calls.append(Call("eth_getBlockByNumber", (hex(block), False)))
        number, *blocks = await self.ask(node, calls)
        if (newest := quantity_of(number)) is None or newest > BLOCK_MAX:
            raise Unreachable("garbage", "no block number")
        if block is None:
            return Look(newest)
        return Look(newest, block_hash_in(blocks[0], block), block_time_in(blocks[0]))

    async def hashes(self, node: Node, numbers: Sequence[int]) -> list[bytes | None]:
        """The hashes of blocks; None for a block that the node lacks. Raises `Unreachable`."""
        answers = await self.ask(node, [Call("eth_getBlockByNumber", (hex(number), False)) for number in numbers])
        return [block_hash_in(answer, number) for answer, number in zip(answers, numbers, strict=True)]
