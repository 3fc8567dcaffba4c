"""How settlement contracts tell their generation, which decides the form of the intents for them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from muniment.chains.catalogue import FIRST_SETTLER, SECOND_SETTLER
from muniment.protocol.evm.hashing import keccak256
from muniment.protocol.intents.types import FIRST, SECOND, Generation

if TYPE_CHECKING:
    from muniment.protocol.evm.address import Address

# The published deployments, which need not be asked.
KNOWN: Final[Mapping[Address, Generation]] = MappingProxyType({FIRST_SETTLER: FIRST, SECOND_SETTLER: SECOND})
# A contract answers the call of its generation with one word, and fails for the other: packages/evm/contracts/
# Settler.sol of mimic-protocol/contracts, before and since 30 April 2026.
GENERATION_CALLS: Final[tuple[tuple[Generation, bytes], ...]] = (
    (FIRST, keccak256(b"getNonceBlock(address,bytes32)")[:4] + bytes(64)),
    (SECOND, keccak256(b"getIntentBlock(bytes32)")[:4] + bytes(32)),
)
