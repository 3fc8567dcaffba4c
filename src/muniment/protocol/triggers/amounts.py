"""The money in the inputs of a trigger: which amount is of which token, in units where they are certain. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from muniment.protocol.evm.address import Address
from muniment.protocol.tokens import Catalogue, Unit, units

# Chains that are named; others are counted.
_CHAINS_MAX: Final = 3


class Money(NamedTuple):
    """A token that inputs name, with the amount of it if they name one."""

    # The inputs: that of the amount first, then that of the token. A TokenAmount is both.
    names: tuple[str, ...]
    token: Address
    chain_ids: tuple[int, ...]
    # None unless all chains agree on it.
    unit: Unit | None
    # In base units; None where there is no amount, or where it was signed in whole tokens of an unknown unit.
    amount: int | None = None
    # In whole tokens, as it was signed: the amount of a TokenAmount.
    whole: str = ""

    @property
    def figure(self) -> str:
        """`1.5 USDC`, else `1500000 base units`; empty without an amount."""
        if self.unit is None or (self.amount is None and not self.whole):
            return self.whole if self.amount is None else f"{self.amount} base units"
        return f"{self.whole if self.amount is None else units(self.amount, self.unit[1])} {self.unit[0]}"

    @property
    def base(self) -> str:
        """The amount in base units beside a figure in units: ` (1500000)`; empty where there is none."""
        return "" if self.unit is None or self.amount is None else f" ({self.amount})"

    def words(self, catalogue: Catalogue, named: Callable[[Address], str] = str) -> str:
        """`1.5 USDC (1500000) on Base`, `USDC on Base`, `1500000 base units of 0x8335…2913 on chain 77`.

        `named` gives an unknown token.
        """
        symbol = self.unit[0] if self.unit else named(self.token)
        what = self.figure if self.unit and self.figure else f"{self.figure} of {symbol}" if self.figure else symbol
        places = " and ".join(catalogue.chain(each) for each in self.chain_ids[:_CHAINS_MAX])
        places += f" and {left} more" if (left := len(self.chain_ids) - _CHAINS_MAX) > 0 else ""
        return f"{what}{self.base}{' on ' if places else ''}{places}"


def kinds_of_inputs(types: Mapping[str, Any]) -> dict[str, str]:
    """The types of the inputs by name, from the types of a signed trigger."""
    return {each["name"]: each["type"] for each in types.get("Input", [])}


def chains_of(inputs: Mapping[str, Any], kinds: Mapping[str, str]) -> dict[str, int]:
    """The chains that inputs name, by the name of the input."""
    return {
        name: _integer(value)
        for name, value in inputs.items()
        if _is_chain(name) and kinds.get(name, "").startswith("uint")
    }


def _is_chain(name: str) -> bool:
    """Whether a name ends in a word for a chain: `chain`, `srcChainId`, `network`."""
    words = _words(name)
    return bool({*words[-1:], *(words[-2:-1] if words[-1:] == ["id"] else [])} & {"chain", "network"})


def money_of(inputs: Mapping[str, Any], kinds: Mapping[str, str], catalogue: Catalogue) -> list[Money]:
    """The money that inputs name, in the order of the inputs.

    A TokenAmount is an amount, and a Token or an address whose name says so is a token. An integer is an amount of the
    token whose name differs in that word alone: `token` and `amount`, `tokenOut` and `minAmountOut`. An address is a
    token on every chain that any input names. The values have passed the checks of their types.
    """
    own = {name: _own(inputs[name], kind) for name, kind in kinds.items() if name in inputs and kind in _STRUCTS}
    chains = chains_of(inputs, kinds)
    named = tuple(dict.fromkeys((*chains.values(), *(chain for _, chain in own.values()))))
    if any(_is_chain(name) and name not in chains for name in inputs):  # a chain of another type, which is not read
        named = ()
    places: dict[str, tuple[Address, tuple[int, ...]]] = {
        name: (own[name][0], (own[name][1],)) if name in own else (Address.parse(str(value)), named)
        for name, value in inputs.items()
        if name in own or (kinds.get(name) == "address" and _TOKENS.intersection(_words(name)))
    }
    pairs = _pairs(inputs, kinds, [name for name in places if kinds[name] != "TokenAmount"])
    paired = set(pairs.values())
    money: list[Money] = []
    for name, value in inputs.items():
        token_name = pairs.get(name, name)
        if token_name not in places or (token_name == name and name in paired):
            continue
        token, chain_ids = places[token_name]
        unit = catalogue.common_unit(token, chain_ids)
        found = Money(tuple(dict.fromkeys((name, token_name))), token, chain_ids, unit)
        if kinds[name] == "TokenAmount":
            found = _of_whole(found, str(value["amount"]))
        elif name in pairs:
            found = found._replace(amount=_integer(value))
        money.append(found)
    return money


_STRUCTS: Final = ("Token", "TokenAmount")
_TOKENS: Final = frozenset({"token", "asset"})
_AMOUNTS: Final = frozenset({"amount"})
# 2^256 has 78 digits; a point may be among them. Python converts at most 4,300.
_DIGITS_MAX: Final = 79
_NAME_LENGTH_MAX: Final = 100
# Words that tell no two amounts of a trigger apart.
_SILENT: Final = frozenset({"min", "max", "minimum", "maximum", "address", "per", "run", "total"})
# `minAmountOut`, `token_in`, `token0`, `USDCAmount`.
_WORD: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")


def _key(name: str, wanted: frozenset[str]) -> frozenset[str]:
    """What tells a name apart from others: its words without those that are `wanted`, or silent."""
    return frozenset(_words(name)) - wanted - _SILENT


def _words(name: str) -> list[str]:
    """The words of a name in lower case; none of one that is too long for a person to have meant them."""
    return [each.lower() for each in _WORD.findall(name)] if len(name) <= _NAME_LENGTH_MAX else []


def _pairs(inputs: Mapping[str, Any], kinds: Mapping[str, str], tokens: list[str]) -> dict[str, str]:
    """The name of the token of each amount, by the name of the amount; an integer below 0 is no amount."""
    amounts = [
        name
        for name, value in inputs.items()
        if kinds.get(name, "").lstrip("u").startswith("int")
        and _AMOUNTS.intersection(_words(name))
        and _integer(value) >= 0
    ]
    named: dict[frozenset[str], list[str]] = {}
    for each in tokens:
        named.setdefault(_key(each, _TOKENS), []).append(each)
    pairs = {name: named.get(_key(name, _AMOUNTS), []) for name in amounts}
    return {name: same[0] for name, same in pairs.items() if len(same) == 1}


def _own(value: Any, kind: str) -> tuple[Address, int]:
    """The token and the chain of a Token or a TokenAmount."""
    token = value["token"] if kind == "TokenAmount" else value
    return Address.parse(str(token["address"])), _integer(token["chainId"])


def _of_whole(money: Money, whole: str) -> Money:
    """With an amount in whole tokens, which has base units where the token's decimals are enough for it."""
    integer, _, fraction = whole.partition(".")
    missing = money.unit[1] - len(fraction) if money.unit else -1
    if missing < 0 or len(whole) > _DIGITS_MAX:
        return money._replace(whole=whole if len(whole) <= _DIGITS_MAX else f"{whole[:20]}…{whole[-20:]}")
    return money._replace(whole=whole, amount=int(f"{integer}{fraction}{'0' * missing}"))


def _integer(value: Any) -> int:
    """An integer of typed data, which may be decimal or hex in a text."""
    return int(str(value), 0)
