"""The header fields of a wallet's balances."""

from __future__ import annotations

from each_row import each_row
from muniment.chains.holdings import Held, Portfolio
from muniment.chains.tokens import Token
from muniment.protocol.evm.address import Address
from muniment.service.resources.users.balances import shortcomings


def unpriced(number: int) -> Held:
    token = Token(8453, Address.parse(f"0x{number:040x}"), "TOK", "Token", 18, "data:,")
    return Held(token, balance=1, allowance=0, price=None)


@each_row(("count", "named", "last"), [(1, 1, "8453:0x"), (50, 50, "8453:0x"), (62, 51, "more=12")])
def test_at_most_50_tokens_without_a_price_are_named(count: int, named: int, last: str) -> None:
    ((name, value),) = shortcomings(Portfolio([unpriced(number) for number in range(count)], {}, 1))
    tokens = value.decode().split(", ")
    assert (name, len(tokens)) == (b"x-unpriced", named)
    assert tokens[-1].startswith(last)
