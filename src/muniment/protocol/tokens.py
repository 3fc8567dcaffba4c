"""Amounts of tokens in units, where they are certain. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple, TypeAlias

from muniment.protocol.evm.address import Address

# The address under which the coin of a chain is listed with its tokens.
NATIVE: Final = Address.parse("0xEeeeeEeeeEeEeeEeEeEeeEEEeeeeEeeeeeeeEEeE")
# The symbol and the decimals of a token.
Unit: TypeAlias = tuple[str, int]


class Catalogue(NamedTuple):
    """What is known of chains by their number: the unit of a token, None if it is unknown, and the chain's name."""

    unit: Callable[[Address, int], Unit | None]
    chain: Callable[[int], str]

    def common_unit(self, token: Address, chain_ids: Iterable[int]) -> Unit | None:
        """The unit of a token on these chains; None unless all of them know it and agree: they may be other tokens."""
        found: Unit | None = None
        for each in chain_ids:
            unit = self.unit(token, each)
            if unit is None or (found is not None and unit != found):
                return None
            found = unit
        return found


def units(value: int, decimals: int) -> str:
    """An amount in units of a token, exact and without trailing zeros."""
    whole, rest = divmod(value, 10**decimals)
    digits = f"{rest:0{decimals}d}".rstrip("0") if decimals else ""
    return f"{whole:,}{'.' + digits if digits else ''}"
