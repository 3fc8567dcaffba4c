"""Receipts of the transactions that intents and proposals name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, LiteralString, NamedTuple, cast

import structlog

from muniment.chains.nodes import Block
from muniment.chains.rpc import Call, Failed, check_given
from muniment.operate.watch.limits import WATCH_LIMITS
from muniment.outgoing import Unreachable
from muniment.protocol.evm.hex import data_of, quantity_of
from muniment.protocol.intents.types import Generation
from muniment.service.resources.intents.chain_facts import RECEIPT_INDEX, Fact
from muniment.service.storage.sql import number_text, placeholders

if TYPE_CHECKING:
    from muniment.chains.nodes import Node, Nodes
    from muniment.operate.watch.limits import WatchLimits
    from muniment.protocol.evm.address import Address
    from muniment.protocol.intents.lifecycle import Outcome
    from muniment.service.storage.database import Database

_HASH_BYTES: Final = 32

_log = structlog.get_logger(__name__)
# The pause after a round of claimed successes. They may be many, and their answers hardly change: they are the intents
# that operators report as succeeded, but that were carried out before the first followed block.
_CLAIMS_REST_SECONDS: Final = 60.0


class Transactions(NamedTuple):
    """Transactions of some intents without a receipt; `last` is the `seq` to continue after, None at the end."""

    named: list[bytes]
    last: int | None


@dataclass(slots=True)
class _Round:
    """Repeated rounds through a settler's intents of a kind (a condition in SQL)."""

    kind: LiteralString
    rest_s: float = 0.0
    after_seq: int = 0
    begins_s: float = 0.0
    is_over: bool = False  # at least one round is complete

    def go_on(self, found: Transactions, now_s: float) -> None:
        if found.last is None:
            self.is_over, self.begins_s = True, now_s + self.rest_s
        self.after_seq = found.last or 0


# The kinds of intents: conditions, each with an index in the order of `seq`.
SUBMITTED: Final = "standing = 'submitted'"
# A proposal may have been sent before operators change the status of its intent.
ENQUEUED: Final = "standing = 'enqueued'"
CLAIMED: Final = "status = 'succeeded' AND chain_status IS NULL"


def _rounds() -> list[_Round]:
    return [_Round(SUBMITTED), _Round(ENQUEUED), _Round(CLAIMED, _CLAIMS_REST_SECONDS)]


@dataclass(slots=True, kw_only=True)
class Receipts:
    """Asks nodes for the receipts of one settler's intents, until each named transaction has one."""

    nodes: Nodes
    settler: Address
    database: Database
    limits: WatchLimits = WATCH_LIMITS
    _rounds: list[_Round] = field(default_factory=_rounds)
    # Transactions whose receipts are too large to read: they are not asked for again.
    _large: set[bytes] = field(default_factory=set[bytes])
    _under_way: list[tuple[_Round, Transactions]] = field(default_factory=list[tuple[_Round, Transactions]])

    @property
    def all_asked(self) -> bool:
        """Whether a node was asked for every named transaction at least once."""
        return all(each.is_over for each in self._rounds)

    async def ask(self, node: Node, followed: int) -> list[Fact]:
        """The outcomes of the next transactions, in blocks up to `followed`. Raises `Unreachable`.

        The caller stores them and then calls `kept`; otherwise the next call asks for the same transactions again.
        """
        due = [each for each in self._rounds if each.begins_s <= self.nodes.now_s()]
        settler, count = self.settler.raw, self.limits.intents_per_step
        parts = [await named_transactions(self.database, settler, each.kind, each.after_seq, count) for each in due]
        self._under_way = list(zip(due, parts, strict=True))
        named = dict.fromkeys(name for part in parts for name in part.named if name not in self._large)
        return await self._outcomes(node, list(named), followed)

    def kept(self) -> None:
        """Continue after the transactions of the last `ask`."""
        for each, part in self._under_way:
            each.go_on(part, self.nodes.now_s())
        self._under_way = []

    async def _answers(self, node: Node, calls: Sequence[Call]) -> list[Any]:
        """The answers to `calls`; None for one that is too large: whoever made the transaction chose its size."""
        try:
            return await self.nodes.ask(node, calls)
        except Unreachable as error:
            if error.reason != "too-large":
                raise
        half = len(calls) // 2
        if not half:
            (name,) = calls[0].params
            _log.warning("a receipt is too large", chain=self.nodes.chain.id, url=node.number, transaction=name)
            self._large.add(bytes.fromhex(name[2:]))
            return [None]
        return [*await self._answers(node, calls[:half]), *await self._answers(node, calls[half:])]

    async def _outcomes(self, node: Node, named: Sequence[bytes], followed: int) -> list[Fact]:
        calls = [Call("eth_getTransactionReceipt", ("0x" + each.hex(),)) for each in named]
        answers = await self._answers(node, calls)
        # One that the node cannot give is asked for again later; a node that gives none has failed.
        if answers and all(isinstance(answer, Failed) for answer in answers):
            check_given(answers[0])
        receipts = [receipt_in(answer, name, followed) for answer, name in zip(answers, named, strict=True)]
        found = [(name, *receipt) for name, receipt in zip(named, receipts, strict=True) if receipt is not None]
        numbers = list(dict.fromkeys(block.number for _, block, _ in found))
        hashes = dict(zip(numbers, await self.nodes.hashes(node, numbers), strict=True))
        if any(hashes[block.number] != block.hash for _, block, _ in found):
            raise Unreachable("moving", "a receipt is of another chain")
        return [
            Fact(self.nodes.chain.id, block.number, block.hash, name, RECEIPT_INDEX, self.settler.raw, name, outcome)
            for name, block, outcome in found
        ]


async def named_transactions(
    database: Database, settler: bytes, kind: LiteralString, after_seq: int, count: int = WATCH_LIMITS.intents_per_step
) -> Transactions:
    """The named transactions, still without a receipt, of the next `count` intents of a kind after `after_seq`."""
    arms = " UNION ALL ".join(
        f"SELECT * FROM (SELECT seq FROM intents WHERE generation = {number_text(each)} AND settler = ? AND {kind} "
        "AND seq > ? ORDER BY seq LIMIT ?) part"
        for each in Generation
    )
    rows = await database.fetch(f"{arms} ORDER BY 1 LIMIT ?", (*(settler, after_seq, count) * len(Generation), count))
    seqs = [seq for (seq,) in rows]
    if not seqs:
        return Transactions([], None)
    marks = placeholders(len(seqs))
    named = await database.fetch(
        f"""SELECT named.transaction_hash FROM (
              SELECT transaction_hash FROM intents WHERE seq IN ({marks}) AND transaction_hash IS NOT NULL
              UNION SELECT transaction_hash FROM intent_proposals
                WHERE intent_seq IN ({marks}) AND transaction_hash IS NOT NULL) AS named
            WHERE NOT EXISTS (
              SELECT 1 FROM executions e WHERE e.subject = named.transaction_hash AND e.log_index = ?)""",
        (*seqs * 2, RECEIPT_INDEX),
    )
    return Transactions([name for (name,) in named], seqs[-1] if len(seqs) == count else None)


def receipt_in(answer: object, transaction_hash: bytes, followed: int) -> tuple[Block, Outcome] | None:
    """The block and the outcome of a transaction, in an answer to `eth_getTransactionReceipt`.

    None: the transaction is not mined or was dropped, its block is above `followed`, or the answer is an error or has
    no status. Raises `Unreachable` for an answer that is not its receipt.
    """
    if answer is None or isinstance(answer, Failed):
        return None
    receipt = cast("dict[str, Any]", answer) if isinstance(answer, dict) else {}
    number, block_hash = quantity_of(receipt.get("blockNumber")), data_of(receipt.get("blockHash"))
    if (
        number is None
        or block_hash is None
        or len(block_hash) != _HASH_BYTES
        or data_of(receipt.get("transactionHash")) != transaction_hash
    ):
        raise Unreachable("garbage", "no receipt")
    status = quantity_of(receipt.get("status"))
    if number > followed or status not in {0, 1}:
        return None
    return Block(number, block_hash), "succeeded" if status else "failed"
