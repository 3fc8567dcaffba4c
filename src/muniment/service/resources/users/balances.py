"""The balances of a wallet: records, and header fields for chains and tokens without data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Final

import msgspec
from msgspec import Meta

from muniment.chains.holdings import Held, Portfolio
from muniment.chains.prices import PriceJson, price_json
from muniment.protocol.errors import ChainsUnavailable
from muniment.protocol.evm.address import Address
from muniment.protocol.wire import Amount, Record

# Tokens named in a header field, some 50 bytes each: proxies commonly accept 4 KB of fields. The record of such a token
# has the price 0.
UNPRICED_NAMED_MAX: Final = 50

ChainId = Annotated[int, Meta(ge=1, le=2**53 - 1, description="EIP-155", examples=[8453])]


class TokenBalance(Record, frozen=True):
    """The caller's balance of one token on one chain, in base units."""

    chain_id: ChainId
    address: Address
    symbol: Annotated[str, Meta(max_length=20)]
    decimals: Annotated[int, Meta(ge=0, le=255)]
    balance: Amount
    allowance: Amount
    price: PriceJson
    logo: Annotated[str, Meta(extra_json_schema={"format": "uri"})]

    example: ClassVar[dict[str, Any]] = {
        "chainId": 8453, "address": "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913", "symbol": "USDC", "decimals": 6,
        "balance": "1500000", "allowance": "0", "price": 1, "logo": "https://example.org/usdc.png",
    }  # fmt: skip


def records(portfolio: Portfolio) -> list[TokenBalance]:
    """The records of a portfolio. Raises `ChainsUnavailable` if there are chains but none could be read."""
    if portfolio.failed and not portfolio.chains_read:
        reasons = ", ".join(f"{chain}: {reason}" for chain, reason in portfolio.failed.items())
        raise ChainsUnavailable(f"no chain could be read ({reasons})")
    return [_record(held) for held in portfolio.held]


def _record(held: Held) -> TokenBalance:
    token = held.token
    return TokenBalance(
        chain_id=token.chain_id, address=token.address, symbol=token.symbol, decimals=token.decimals,
        balance=Amount(held.balance), allowance=Amount(held.allowance),
        price=msgspec.Raw(price_json(held.price or 0).encode()), logo=token.logo,
    )  # fmt: skip


def shortcomings(portfolio: Portfolio) -> Sequence[tuple[bytes, bytes]]:
    """The header fields that name the chains that could not be read and the tokens without a price."""
    partial = ", ".join(f"chain={chain}; reason={reason}" for chain, reason in portfolio.failed.items())
    tokens = [f"{held.token.chain_id}:{held.token.address}" for held in portfolio.held if held.price is None]
    more = len(tokens) - UNPRICED_NAMED_MAX
    unpriced = ", ".join(tokens[:UNPRICED_NAMED_MAX] + ([f"more={more}"] if more > 0 else []))
    named = ((b"x-partial", partial), (b"x-unpriced", unpriced))
    return [(name, text.encode()) for name, text in named if text]
