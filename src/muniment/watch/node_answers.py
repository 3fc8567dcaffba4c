"""Answers of nodes about blocks, logs and receipts, checked before anything uses them. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

from muniment.chains.rpc import Failed
from muniment.evm.hex import data_of, quantity_of
from muniment.outgoing import Unreachable

if TYPE_CHECKING:
    from muniment.evm.address import Address
    from muniment.intents.lifecycle import Outcome
    from muniment.watch.events import SettlerEvent

_HASH_BYTES: Final = 32


@dataclass(frozen=True, slots=True)
class Block:
    """The number and hash of a block, as a node gave them."""

    number: int
    hash: bytes


def block_hash_in(answer: object, number: int) -> bytes | None:
    """The hash in an answer to `eth_getBlockByNumber`; None when the node lacks the block. Raises `Unreachable`."""
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
    """The block's time in an answer to `eth_getBlockByNumber`, in Unix seconds; None when the answer has none."""
    block = cast("dict[str, Any]", answer) if isinstance(answer, dict) else {}
    return quantity_of(block.get("timestamp"))


def may_be_size(reason: str) -> bool:
    """Whether a request may have failed because its range was too large.

    Status 429 limits the rate of requests; smaller ranges would only mean more of them.
    """
    return reason in {"timeout", "too-large"} or (reason.startswith(("http-4", "http-5")) and reason != "http-429")


def blocks_of(logs: Sequence[Any], settlers: Sequence[Address], first: int, last: int) -> dict[int, bytes]:
    """The hashes of the logs' blocks, by number. Raises `Unreachable` for a log that does not match the request."""
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


def pieces(events: Sequence[SettlerEvent], last: Block, facts_max: int) -> Iterator[tuple[list[SettlerEvent], Block]]:
    """The events of a range in pieces of about `facts_max`, each with the last block that it completes.

    Each piece is stored in a transaction of its own. No block is split, so that progress can be stored with each piece.
    `last` is the last block of the range.
    """
    piece: list[SettlerEvent] = []
    for event in sorted(events, key=lambda event: (event.block_number, event.log_index)):
        if len(piece) >= facts_max and event.block_number > piece[-1].block_number:
            yield piece, Block(piece[-1].block_number, piece[-1].block_hash)
            piece = []
        piece.append(event)
    yield piece, last


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
