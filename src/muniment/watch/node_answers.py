"""What nodes answer about blocks, logs and receipts, checked before anything of it is believed. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, cast

from muniment.chains.rpc import Failed
from muniment.evm.hex import data_of, quantity_of
from muniment.outgoing import Unreachable

if TYPE_CHECKING:
    from muniment.evm.address import Address
    from muniment.watch.events import Fact

# Facts in one transaction: each may touch an intent, which takes about a millisecond of the writer.
FACTS_MAX: Final = 500
_HASH_BYTES: Final = 32


@dataclass(frozen=True, slots=True)
class Block:
    """A block that was seen."""

    number: int
    hash: bytes


def block_hash_in(answer: object, number: int) -> bytes | None:
    """The hash of the block that `eth_getBlockByNumber` answered; None for one that the node does not have."""
    if answer is None:
        return None
    if isinstance(answer, Failed):
        raise Unreachable("refused", answer.message)
    block = cast("dict[str, Any]", answer) if isinstance(answer, dict) else {}
    found = data_of(block.get("hash"))
    if found is None or len(found) != _HASH_BYTES or quantity_of(block.get("number")) != number:
        raise Unreachable("garbage", "no block")
    return found


def block_time_in(answer: object) -> int | None:
    """When the block that `eth_getBlockByNumber` answered was made, in Unix seconds; None when it does not say."""
    block = cast("dict[str, Any]", answer) if isinstance(answer, dict) else {}
    return quantity_of(block.get("timestamp"))


def may_be_size(reason: str) -> bool:
    """Whether a range may have been too large. 429 is about the rate: a smaller range would be one request more."""
    return reason in {"timeout", "too-large"} or (reason.startswith(("http-4", "http-5")) and reason != "http-429")


def blocks_of(logs: Sequence[Any], settlers: Sequence[Address], first: int, last: int) -> dict[int, bytes]:
    """The blocks that logs are of, by number. Raises `Unreachable` for a log that was not asked for."""
    blocks: dict[int, bytes] = {}
    asked = {settler.raw for settler in settlers}
    for entry in logs:
        log = cast("dict[str, Any]", entry) if isinstance(entry, dict) else {}
        number, block_hash = quantity_of(log.get("blockNumber")), data_of(log.get("blockHash"))
        fits = (
            data_of(log.get("address")) in asked
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


def pieces(facts: Sequence[Fact], last: Block) -> Iterator[tuple[list[Fact], Block]]:
    """Facts for one transaction each, and the block up to which the range is followed with them."""
    piece: list[Fact] = []
    for fact in sorted(facts, key=lambda fact: (fact.block_number, fact.log_index)):
        if len(piece) >= FACTS_MAX and fact.block_number > piece[-1].block_number:
            yield piece, Block(piece[-1].block_number, piece[-1].block_hash)
            piece = []
        piece.append(fact)
    yield piece, last


def receipt_in(
    answer: object, transaction_hash: bytes, followed: int
) -> tuple[Block, Literal["succeeded", "failed"]] | None:
    """The block and the outcome of a transaction, by its receipt. None: none yet (or dropped), too new, or not told."""
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
