"""Topics of events in words: well-known events by their topic 0, and addresses."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import cache
from typing import Final

from muniment.protocol.evm.address import Address
from muniment.protocol.evm.event_signature import event_topic

# The events that wallets meet most. A hash proves the name and the types of an event, not what its contract means.
_WELL_KNOWN: Final = (
    # ERC-20 and ERC-721
    "Transfer(address,address,uint256)",
    "Approval(address,address,uint256)",
    "ApprovalForAll(address,address,bool)",
    # ERC-1155
    "TransferSingle(address,address,address,uint256,uint256)",
    "TransferBatch(address,address,address,uint256[],uint256[])",
    # ERC-4626
    "Deposit(address,address,uint256,uint256)",
    "Withdraw(address,address,address,uint256,uint256)",
    # WETH9
    "Deposit(address,uint256)",
    "Withdrawal(address,uint256)",
    # ERC-173 and ERC-1967
    "OwnershipTransferred(address,address)",
    "Upgraded(address)",
    # Uniswap v2 (a pair) and v3 (a pool)
    "Swap(address,uint256,uint256,uint256,uint256,address)",
    "Sync(uint112,uint112)",
    "Swap(address,address,int256,int256,uint160,uint128,int24)",
    # Chainlink
    "AnswerUpdated(int256,uint256,uint256)",
)
_ADDRESS_BYTES: Final = 20
# A word below 2^96 is taken for a number: after its padding it would have eight bytes of zeros, and addresses that were
# searched for because of their zeros have about six.
_ZEROS_OF_NUMBERS: Final = bytes(20)


def topic_in_words(position: int, topic: str) -> str:
    """What a topic of 0x and 64 hex digits is, such as `the event Upgraded(address)` or `the address 0x…`.

    Empty for an event that is not well known, and for what is no address, as far as its 32 bytes tell.
    """
    word = bytes.fromhex(topic[2:])
    if position == 0:
        signature = _signatures().get(word)
        return f"the event {signature}" if signature else ""
    padding, address = word[:-_ADDRESS_BYTES], word[-_ADDRESS_BYTES:]
    is_address = not any(padding) and not word.startswith(_ZEROS_OF_NUMBERS)
    return f"the address {Address.from_raw(address)}" if is_address else ""


def event_name(topics: Sequence[Collection[str]]) -> str:
    """The name of the well-known event, such as `Transfer`, that `topics` wait for; empty if there is not just one."""
    first = [str(each).lower() for each in topics[0]] if topics and topics[0] else []
    named = (each for word, each in _signatures().items() if first == [f"0x{word.hex()}"])
    return next(named, "").partition("(")[0]


@cache
def _signatures() -> dict[bytes, str]:
    return {bytes.fromhex(event_topic(each)[2:]): each for each in _WELL_KNOWN}
