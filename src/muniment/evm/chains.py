"""The EVM chains that a registry knows unless its configuration says otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final


@dataclass(frozen=True, slots=True)
class Chain:
    """One EVM chain: its id (EIP-155) and the name that people know it by."""

    id: int
    name: str


# Names as in the chain registry of the Ethereum community (ethereum-lists), shortened to common use.
CATALOGUE: Final[Mapping[int, Chain]] = MappingProxyType(
    {
        chain.id: chain
        for chain in (
            Chain(1, "Ethereum"),
            Chain(10, "OP Mainnet"),
            Chain(56, "BNB Smart Chain"),
            Chain(100, "Gnosis"),
            Chain(137, "Polygon"),
            Chain(146, "Sonic"),
            Chain(8453, "Base"),
            Chain(42161, "Arbitrum One"),
            Chain(43114, "Avalanche C-Chain"),
            Chain(84532, "Base Sepolia"),
        )
    }
)
