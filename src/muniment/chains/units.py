"""The units of tokens and the names of chains, for amounts in words."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache

from muniment.chains.catalogue import CATALOGUE, NATIVE, Chain
from muniment.chains.tokens import PACKAGED_LIST, Token, parse_token_list
from muniment.protocol.evm.address import Address
from muniment.protocol.tokens import Catalogue, Unit


def catalogue_of(chains: Mapping[int, Chain], token: Callable[[int, Address], Token | None]) -> Catalogue:
    """What is known of `chains`, their coins among it; `token` finds a token of a chain."""

    def unit(address: Address, chain_id: int) -> Unit | None:
        if address == NATIVE and chain_id in chains:
            return chains[chain_id].native_symbol, chains[chain_id].native_decimals
        found = token(chain_id, address)
        return (found.symbol, found.decimals) if found else None

    def name(chain_id: int) -> str:
        return chains[chain_id].name if chain_id in chains else f"chain {chain_id}"

    return Catalogue(unit, name)


@cache
def packaged_catalogue() -> Catalogue:
    """What the package knows by itself: a client believes no registry about a token."""
    tokens = {(each.chain_id, each.address): each for each in parse_token_list(PACKAGED_LIST.read_bytes())}
    return catalogue_of(CATALOGUE, lambda chain_id, address: tokens.get((chain_id, address)))
