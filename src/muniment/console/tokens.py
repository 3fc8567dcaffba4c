"""Amounts of tokens, in whole units and with the symbol where the chain or a token list knows the token."""

from __future__ import annotations

from typing import TYPE_CHECKING

from muniment.chains.catalogue import NATIVE
from muniment.console.parts import identifier
from muniment.evm.address import Address
from muniment.http.html.markup import Html, html, strange

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from muniment.chains.catalogue import Chain
    from muniment.chains.token_lists import TokenLists


class Tokens:
    """The tokens and coins of the chains that a registry knows."""

    def __init__(self, chains: Mapping[int, Chain], lists: TokenLists) -> None:
        """Coins are those of `chains`, tokens those of `lists`."""
        self._chains = chains
        self._lists = lists

    def amount(self, value: int, token: Address, chain_ids: Collection[int]) -> Html:
        """`value` in base units of a token on one of these chains.

        A token of one address may be another one on another chain: unless all of the chains that know it agree, the
        amount stays in base units.
        """
        known = {found for each in chain_ids if (found := self._unit(each, token)) is not None}
        if len(known) != 1:
            whose = html("the chain's coin") if token == NATIVE else identifier(token)
            return html('<span class="amount">{}</span> of {}', grouped(value), whose)
        ((symbol, decimals),) = known
        return html(
            '<span class="amount" title="{} base units of {}">{}\N{NO-BREAK SPACE}{}</span>',
            value, token, units(value, decimals), strange(symbol),
        )  # fmt: skip

    def _unit(self, chain_id: int, token: Address) -> tuple[str, int] | None:
        """The symbol and the decimals of a token."""
        chain = self._chains.get(chain_id)
        if chain is not None and token == NATIVE:
            return chain.native_symbol, chain.native_decimals
        found = self._lists.token(chain_id, token)
        return (found.symbol, found.decimals) if found else None


def units(value: int, decimals: int) -> str:
    """An amount in units of a token, exact and without trailing zeros."""
    whole, rest = divmod(value, 10**decimals)
    digits = f"{rest:0{decimals}d}".rstrip("0") if decimals else ""
    return f"{whole:,}{'.' + digits if digits else ''}"


def grouped(value: int) -> str:
    """A whole number, its digits in groups of three; a number of up to five digits stays together."""
    return f"{value:,}".replace(",", " ") if value >= 10**5 else str(value)
