"""Records in words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

from muniment.chains.catalogue import NATIVE
from muniment.chains.units import catalogue_of
from muniment.protocol.evm.abi import ADDRESS, BYTES, UINT256, ListOf, TupleOf
from muniment.protocol.evm.address import Address
from muniment.protocol.evm.selectors import SELECTOR_BYTES, call_in_words
from muniment.protocol.intents.asked import BYTES_MAX, SWAPS, Operation, decoded
from muniment.protocol.intents.types import Proposal
from muniment.protocol.tokens import units
from muniment.service.console.parts import identifier, shortened
from muniment.service.http.html.markup import Html, html, strange

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from muniment.chains.catalogue import Chain
    from muniment.chains.token_lists import TokenLists
    from muniment.protocol.intents.types import AnyIntent, AnyProposal
    from muniment.protocol.triggers.amounts import Money
    from muniment.protocol.triggers.types import Trigger


class Tokens:
    """Known tokens and coins of the configured chains."""

    def __init__(self, chains: Mapping[int, Chain], lists: TokenLists) -> None:
        """Coins are those of `chains`, tokens those of `lists`."""
        self.catalogue = catalogue_of(chains, lists.token)

    def amount(self, value: int, token: Address, chain_ids: Collection[int]) -> Html:
        """`value` in base units of a token on one of these chains.

        One address may be different tokens on different chains: unless all of them know it and agree, the amount stays
        in base units.
        """
        return self._amount(value, token, chain_ids, identifier)

    def amount_in_line(self, value: int, token: Address, chain_ids: Collection[int]) -> Html:
        """The same for a row: without a button that copies the address of an unknown token."""
        return self._amount(value, token, chain_ids, plain)

    def name(self, token: Address, chain_ids: Collection[int]) -> Html:
        """The symbol of a token on these chains, else its address, shortened."""
        symbol = self.symbol(token, chain_ids)
        return html('<span title="{}">{}</span>', token, strange(symbol)) if symbol else plain(token)

    def symbol(self, token: Address, chain_ids: Collection[int]) -> str:
        """The symbol of a token on these chains; empty unless all of them know it and agree."""
        unit = self.catalogue.common_unit(token, chain_ids)
        return unit[0] if unit else ""

    def money(self, money: Money) -> Html:
        """A token, with its amount in units and in base units."""
        if not money.figure:
            return self.name(money.token, money.chain_ids)
        if money.unit is None:
            return html('<span class="amount">{}</span> of {}', strange(money.figure), plain(money.token))
        return html(
            '<span class="amount" title="{}">{}</span>{}',
            money.token, strange(money.figure), html('<span class="faint">{}</span>', money.base),
        )  # fmt: skip

    def _amount(
        self, value: int, token: Address, chain_ids: Collection[int], named: Callable[[Address], Html]
    ) -> Html:  # fmt: skip
        unit = self.catalogue.common_unit(token, chain_ids)
        if unit is None:
            whose = html("the chain's coin") if token == NATIVE else named(token)
            return html('<span class="amount">{}</span> of {}', grouped(value), whose)
        symbol, decimals = unit
        return html(
            '<span class="amount" title="{} base units of {}">{}\N{NO-BREAK SPACE}{}</span>',
            value, token, units(value, decimals), strange(symbol),
        )  # fmt: skip


def plain(address: Address) -> Html:
    """An address, shortened, without a button."""
    return html('<span class="mono" title="{}">{}</span>', address, shortened(address))


def clipped(text: str, length: int) -> str:
    """A text of at most `length` characters, cut between words, or in the middle of a word: no number loses its end."""
    if len(text) <= length:
        return text
    words, _, _ = text[: length - 1].rpartition(" ")
    end = length // 2
    return f"{words} …" if words else f"{text[: length - end - 1]}…{text[-end:]}"


def grouped(value: int) -> str:
    """A whole number with its digits in groups of three, from six digits on."""
    return f"{value:,}".replace(",", " ") if value >= 10**5 else str(value)


# 2^256 has 78 digits; a sign may come before them.
_DIGITS_MAX: Final = 79
# Amounts from here on are probably in the smallest unit of a token of 18 decimals: a hint beside the number.
_HINTED_FROM: Final = 10**14


def is_active(trigger: Trigger, now_ms: int) -> str:
    """`active`, `deactivated` or `ended`."""
    if trigger.deactivate_sig:
        return "deactivated"
    return "ended" if 0 < trigger.end_date <= now_ms else "active"


def value_of(
    value: Any, kind: str, chains: Mapping[int, Chain], name: str, symbol_of: Callable[[Address], str]
) -> Html:  # fmt: skip
    """An input of a trigger by its type: `8453 · Base`, `0x8335… · USDC`, amounts in groups, texts unchanged.

    `symbol_of` is that of a token on the chains that the inputs name; empty for other addresses.
    """
    if isinstance(value, list):
        inner = kind.rpartition("[")[0]
        items = cast("list[Any]", value)
        return html("<ol>{}</ol>", [html("<li>{}", value_of(each, inner, chains, name, symbol_of)) for each in items])
    if isinstance(value, dict):
        members = cast("dict[str, Any]", value)
        return html(
            '<dl class="facts">{}</dl>',
            [
                html("<dt>{}<dd>{}", key, value_of(each, key if key == "address" else "", chains, key, _unnamed))
                for key, each in members.items()
            ],
        )
    if kind == "address":
        address = Address.parse(str(value))
        symbol = symbol_of(address)
        return html("{}{}", identifier(str(address), whole=True), html(" · {}", strange(symbol)) if symbol else None)
    text = value if isinstance(value, str) else str(value).lower() if isinstance(value, bool) else str(value)
    if text.isdecimal() and kind != "string" and len(text) <= _DIGITS_MAX:
        return _number(int(text), chains, name)
    return strange(text) if kind == "string" else html("<code>{}</code>", strange(text))


def _unnamed(_token: Address) -> str:
    """No symbol: what has members names its own chain."""
    return ""


def _number(value: int, chains: Mapping[int, Chain], name: str) -> Html:
    if "chain" in name.lower() and value in chains:
        return html("<code>{}</code> · {}", value, chains[value].name)
    if value >= _HINTED_FROM:
        return html('<code>{}</code> <span class="faint">= {} × 10¹⁸</span>', grouped(value), units(value, 18))
    return html("<code>{}</code>", value)


# Transfers, calls or tokens of one operation that are put into words.
_SHOWN_MAX: Final = 20
# Swaps of one intent for which offers are put into words: a page has up to 50 proposals.
_OFFERS_MAX: Final = 4
_OFFER: Final = TupleOf((ADDRESS, BYTES, ListOf(UINT256)))


def paid_on(intent: AnyIntent, operations: Sequence[Operation], chains: Mapping[int, Chain]) -> set[int]:
    """The chains on which fees may be paid.

    Those of the operations, and all with the settlement contract unless every operation can be read.
    """
    said = {each.chain_ids[0] for each in operations if each.chain_ids}
    if said and all(each.chain_ids for each in operations):
        return said
    return said | {each.id for each in chains.values() if intent.settler in each.settlers}


def asked_for(operation: Operation, tokens: Tokens, chains: Mapping[int, Chain], root: str) -> Html:
    """The requests of an operation, one line each."""
    if operation.values is None:
        return html('<span class="faint">{}</span>', "No data." if operation.data == "0x" else "Not readable here.")
    if operation.kind in SWAPS:
        lines = _swap(operation.values, tokens, chains, root)
    elif operation.kind == "Transfer":
        chain_id, transfers = operation.values
        lines = [
            html(
                "{} to {} on {}",
                tokens.amount(amount, token, (chain_id,)), _account(recipient, root), chain_name(chain_id, chains),
            )
            for token, amount, recipient in transfers
        ]  # fmt: skip
    elif operation.kind == "Dynamic call":
        chain_id, calls = operation.values
        lines = [html("{} on {}, made up when they run", counted(len(calls), "call"), chain_name(chain_id, chains))]
    else:
        chain_id, calls = operation.values
        lines = [_call(each, chain_id, chains, root) for each in calls]
    return _lines(lines)


def offered(proposal: AnyProposal, operations: Sequence[Operation], tokens: Tokens) -> Html | None:
    """The offers of a proposal for the swaps of an intent; None if they cannot be read."""
    datas = [proposal.data] if isinstance(proposal, Proposal) else proposal.datas
    if sum(len(each) for each in datas) > 2 * BYTES_MAX:
        return None
    lines: list[Html] = []
    for operation, data in zip(operations, datas, strict=False):
        if operation.kind not in SWAPS or operation.values is None:
            continue
        offer = decoded(_OFFER, data)
        _, destination, _, wanted = operation.values
        if offer is None or len(offer[2]) != len(wanted):
            return None
        pairs = zip(offer[2], wanted, strict=True)
        lines += [tokens.amount(amount, token, (destination,)) for amount, (token, _, _) in pairs]
    return _lines(lines) if lines else None


def shows_offers(operations: Sequence[Operation]) -> bool:
    """Whether an intent has readable swaps, and few enough to show each proposal's offers for them."""
    return 0 < sum(each.kind in SWAPS and each.values is not None for each in operations) <= _OFFERS_MAX


def _swap(values: tuple[Any, ...], tokens: Tokens, chains: Mapping[int, Chain], root: str) -> list[Html]:
    source, destination, given, wanted = values
    place = chain_name(destination, chains)
    return [
        *(
            html("gives {} on {}", tokens.amount(amount, token, (source,)), chain_name(source, chains))
            for token, amount in given
        ),
        *(
            html(
                "gets at least {} on {}, for {}",
                tokens.amount(amount, token, (destination,)), place, _account(recipient, root),
            )
            for token, amount, recipient in wanted
        ),
    ]  # fmt: skip


def _call(call: tuple[Address, bytes, int], chain_id: int, chains: Mapping[int, Chain], root: str) -> Html:
    target, data, value = call
    chain = chains.get(chain_id)
    return html(
        "{} on {}{}{}", _account(target, root), chain_name(chain_id, chains),
        html(", function {}, {}", function_of(data), counted(len(data), "byte")) if data else None,
        html(", with {}", _coins(value, chain)) if value else None,
    )  # fmt: skip


def function_of(data: bytes) -> Html:
    """The function that call data begins with: by name if it is well known, else its selector."""
    selector = data[:SELECTOR_BYTES].hex()
    if words := call_in_words(data):
        return html('<code title="The best-known function with the selector 0x{}">{}</code>', selector, words)
    return html('<code>0x{}</code> <span class="faint">not well known</span>', selector)


def _coins(value: int, chain: Chain | None) -> str:
    if chain is None:
        return f"{value} base units of the chain's coin"
    return f"{units(value, chain.native_decimals)} {chain.native_symbol}"


def _account(address: Address, root: str) -> Html:
    return identifier(address, f"{root}console/addresses/{address}")


def chain_name(chain_id: int, chains: Mapping[int, Chain]) -> str:
    """The name of a chain, or its number."""
    chain = chains.get(chain_id)
    return chain.name if chain else f"chain {chain_id}"


def counted(number: int, noun: str) -> str:
    """`1 byte`, `2 bytes`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _lines(lines: Sequence[Html]) -> Html:
    shown = [html("<div>{}</div>", each) for each in lines[:_SHOWN_MAX]]
    left = len(lines) - len(shown)
    return html("{}{}", shown, html('<div class="faint">and {} more</div>', left) if left else None)
