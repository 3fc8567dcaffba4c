"""Many contract reads in one `eth_call`, with calldata encoded by hand (Solidity ABI specification).

There are two ways. Multicall3, with `aggregate3`, is deployed on every chain of the catalogue. The one-shot reader
needs no contract: it is creation code that makes each read under a gas limit, and leaves out zeros.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from muniment.protocol.evm.address import Address

AGGREGATE3: Final = bytes.fromhex("82ad56cb")
BALANCE_OF: Final = bytes.fromhex("70a08231")
ALLOWANCE: Final = bytes.fromhex("dd62ed3e")
GET_ETH_BALANCE: Final = bytes.fromhex("4d2301cc")
GET_BLOCK_NUMBER: Final = bytes.fromhex("42cbb15c")
LATEST_ROUND_DATA: Final = bytes.fromhex("feaf968c")
DECIMALS: Final = bytes.fromhex("313ce567")
# An honest token has at most this many decimals (uint8 in EIP-20).
DECIMALS_MAX: Final = 255
WORD: Final = 32
# An honest token reads a balance with some 30,000 gas; proxies and rebasing tokens need less than this.
READ_GAS_MAX: Final = 100_000
# The longest useful answer: the five words of latestRoundData. Further bytes are a return bomb, and are cut off.
_RETURNED_BYTES_MAX: Final = 5 * WORD
_ENTRY: Final = 67
_READER: Final = bytes.fromhex(Path(__file__).with_name("one_shot_reader.hex").read_text("ascii"))
_BALANCE_READ, _ALLOWANCE_READ = 1, 2


@dataclass(frozen=True, slots=True)
class Read:
    """A contract and the calldata to read it with."""

    target: Address
    data: bytes


@dataclass(frozen=True, slots=True)
class Holding:
    """One token's numbers for a wallet, in base units; None if unreadable."""

    balance: int | None
    allowance: int | None


def word(value: int | Address) -> bytes:
    """One ABI word: an unsigned integer or an address."""
    return value.raw.rjust(WORD, b"\0") if isinstance(value, Address) else value.to_bytes(WORD)


def aggregate3(reads: Sequence[Read]) -> bytes:
    """Calldata of `aggregate3((address,bool,bytes)[])`; each call may fail alone."""
    bodies = [
        word(read.target)
        + word(1)
        + word(3 * WORD)
        + word(len(read.data))
        + read.data
        + b"\0" * (-len(read.data) % WORD)
        for read in reads
    ]
    offsets: list[bytes] = []
    at = WORD * len(reads)
    for body in bodies:
        offsets.append(word(at))
        at += len(body)
    return b"".join([AGGREGATE3, word(WORD), word(len(reads)), *offsets, *bodies])


def decode_aggregate3(answer: bytes, count: int) -> list[bytes | None] | None:
    """The bytes that each of `count` calls returned, None for a failed call; None for a malformed answer."""
    try:
        start = _number(answer, 0)
        if _number(answer, start) != count:
            return None
        return [_returned(answer, start + WORD, index) for index in range(count)]
    except ValueError:
        return None


def _returned(answer: bytes, base: int, index: int) -> bytes | None:
    at = base + _number(answer, base + WORD * index)
    success, data_at = _number(answer, at), at + _number(answer, at + WORD)
    length = _number(answer, data_at)
    if data_at + WORD + length > len(answer):
        raise ValueError("an answer is cut short")
    data_at += WORD
    return answer[data_at : data_at + min(length, _RETURNED_BYTES_MAX)] if success == 1 else None


def _number(answer: bytes, at: int) -> int:
    """The word at `at`. Answers are not trusted, and offsets in them may point anywhere."""
    if not 0 <= at <= len(answer) - WORD:
        raise ValueError("an offset points outside of the answer")
    return int.from_bytes(answer[at : at + WORD])


def number_of(returned: bytes | None) -> int | None:
    """The unsigned integer that a call returned as one word; None for another length.

    An address without code returns nothing; some tokens return too little, some far too much.
    """
    return int.from_bytes(returned) if returned is not None and len(returned) == WORD else None


def one_shot(wallet: Address, spender: Address, tokens: Sequence[Address]) -> bytes:
    """The creation code of the reader with its arguments; the token at address zero is the native coin."""
    arguments = [word(wallet), word(spender), word(READ_GAS_MAX), word(4 * WORD), word(len(tokens))]
    return b"".join([_READER, *arguments, *(word(token) for token in tokens)])


@dataclass(frozen=True, slots=True)
class OneShot:
    """An answer of the one-shot reader. `tried` may be less than `asked`; tried tokens not in `found` have zero."""

    block: int
    tried: int
    found: dict[int, Holding]


def decode_one_shot(answer: bytes, asked: int) -> OneShot | None:
    """The answer, or None if it is malformed: block number, tokens tried, then 67 bytes per entry."""
    entries = answer[2 * WORD :]
    if len(answer) < 2 * WORD or len(entries) % _ENTRY:
        return None
    block, tried = _number(answer, 0), _number(answer, WORD)
    if tried > asked or len(entries) // _ENTRY > tried:
        return None
    found: dict[int, Holding] = {}
    for at in range(0, len(entries), _ENTRY):
        index, flags = int.from_bytes(entries[at : at + 2]), entries[at + 2]
        if index >= tried or index in found or flags > (_BALANCE_READ | _ALLOWANCE_READ):
            return None
        balance, allowance = _number(entries, at + 3), _number(entries, at + 3 + WORD)
        found[index] = Holding(
            balance if flags & _BALANCE_READ else None, allowance if flags & _ALLOWANCE_READ else None
        )
    return OneShot(block, tried, found)
