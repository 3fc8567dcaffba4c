"""The operations of an intent in words, as far as their data can be read.

The data is that of the settlement contracts of both generations, which encode a swap, a transfer and a call alike
(mimic-protocol/contracts, packages/evm/contracts/Intents.sol, before and since commit 4c07924 of 30 April 2026).
The registry does not check this data, only the chain does: unreadable data is shown as it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from muniment.console.parts import identifier
from muniment.console.tokens import units
from muniment.console.words import kind_of_first, second_kind
from muniment.evm.abi import ADDRESS, BYTES, UINT256, ListOf, TupleOf, decode
from muniment.http.html.markup import Html, html
from muniment.intents.types import Intent, Proposal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from muniment.chains.catalogue import Chain
    from muniment.console.tokens import Tokens
    from muniment.evm.address import Address
    from muniment.evm.hex import HexString
    from muniment.intents.types import AnyIntent, AnyProposal

# Longer data is not read for a page: 16 KiB take a millisecond, and honest operations have less than one.
_BYTES_MAX: Final = 16 * 1024
# Transfers, calls or tokens of one operation that are put into words.
_SHOWN_MAX: Final = 20
# Swaps of one intent for which offers are put into words: a page has up to 50 proposals.
_OFFERS_MAX: Final = 4
_SELECTOR: Final = 4
_AMOUNTS: Final = ListOf(TupleOf((ADDRESS, UINT256)))
_SWAP: Final = TupleOf((UINT256, UINT256, _AMOUNTS, ListOf(TupleOf((ADDRESS, UINT256, ADDRESS)))))
_TRANSFER: Final = TupleOf((UINT256, ListOf(TupleOf((ADDRESS, UINT256, ADDRESS)))))
_CALL: Final = TupleOf((UINT256, ListOf(TupleOf((ADDRESS, BYTES, UINT256)))))
_DYNAMIC_CALL: Final = TupleOf((UINT256, ListOf(BYTES)))
_OFFER: Final = TupleOf((ADDRESS, BYTES, ListOf(UINT256)))
_SWAPS: Final = ("Swap", "Cross-chain swap")
_FORMS: Final = {
    **dict.fromkeys(_SWAPS, _SWAP), "Transfer": _TRANSFER, "Call": _CALL, "EVM call": _CALL,
    "Dynamic call": _DYNAMIC_CALL,
}  # fmt: skip


class Operation(NamedTuple):
    """One operation of an intent of either form; `values` is what its data says, None where it cannot be read."""

    kind: str
    user: Address
    data: HexString
    values: tuple[Any, ...] | None

    @property
    def chain_ids(self) -> tuple[int, ...]:
        """The chains on which it happens, the first being where its user pays."""
        if self.values is None:
            return ()
        return self.values[:2] if self.kind in _SWAPS else self.values[:1]


def operations_of(intent: AnyIntent) -> list[Operation]:
    """The operations of an intent, one or several."""
    if isinstance(intent, Intent):
        found = [(kind_of_first(intent.op), intent.user, intent.data)]
    else:
        found = [(second_kind(each.op_type), each.user, each.data) for each in intent.operations]
    is_short = sum(len(data) for _, _, data in found) <= 2 * _BYTES_MAX
    return [Operation(kind, user, data, _read(kind, data) if is_short else None) for kind, user, data in found]


def paid_on(intent: AnyIntent, operations: Sequence[Operation], chains: Mapping[int, Chain]) -> set[int]:
    """The chains on which fees may be paid: those of the operations, else all with the settlement contract."""
    said = {each.chain_ids[0] for each in operations if each.chain_ids}
    return said or {each.id for each in chains.values() if intent.settler in each.settlers}


def asked_for(operation: Operation, tokens: Tokens, chains: Mapping[int, Chain], root: str) -> Html:
    """The requests of an operation, one line each."""
    if operation.values is None:
        return html('<span class="faint">{}</span>', "No data." if operation.data == "0x" else "Not readable here.")
    if operation.kind in _SWAPS:
        lines = _swap(operation.values, tokens, chains, root)
    elif operation.kind == "Transfer":
        chain_id, transfers = operation.values
        lines = [
            html(
                "{} to {} on {}",
                tokens.amount(amount, token, (chain_id,)), _account(recipient, root), _chain(chain_id, chains),
            )
            for token, amount, recipient in transfers
        ]  # fmt: skip
    elif operation.kind == "Dynamic call":
        chain_id, calls = operation.values
        lines = [html("{} on {}, made up when they run", _count(len(calls), "call"), _chain(chain_id, chains))]
    else:
        chain_id, calls = operation.values
        lines = [_call(each, chain_id, chains, root) for each in calls]
    return _lines(lines)


def offered(proposal: AnyProposal, operations: Sequence[Operation], tokens: Tokens) -> Html | None:
    """The offers of a proposal for the swaps of an intent; None if they cannot be read."""
    datas = [proposal.data] if isinstance(proposal, Proposal) else proposal.datas
    if sum(len(each) for each in datas) > 2 * _BYTES_MAX:
        return None
    lines: list[Html] = []
    for operation, data in zip(operations, datas, strict=False):
        if operation.kind not in _SWAPS or operation.values is None:
            continue
        offer = _decoded(_OFFER, data)
        _, destination, _, wanted = operation.values
        if offer is None or len(offer[2]) != len(wanted):
            return None
        pairs = zip(offer[2], wanted, strict=True)
        lines += [tokens.amount(amount, token, (destination,)) for amount, (token, _, _) in pairs]
    return _lines(lines) if lines else None


def shows_offers(operations: Sequence[Operation]) -> bool:
    """Whether an intent has swaps that can be read, and so few that a page can tell each proposal's offers for them."""
    return 0 < sum(each.kind in _SWAPS and each.values is not None for each in operations) <= _OFFERS_MAX


def _read(kind: str, data: HexString) -> tuple[Any, ...] | None:
    return _decoded(_FORMS[kind], data) if kind in _FORMS else None


def _decoded(form: TupleOf, data: HexString) -> tuple[Any, ...] | None:
    try:
        (values,) = decode((form,), data.raw)
    except ValueError:
        return None
    return values


def _swap(values: tuple[Any, ...], tokens: Tokens, chains: Mapping[int, Chain], root: str) -> list[Html]:
    source, destination, given, wanted = values
    return [
        *(
            html("gives {} on {}", tokens.amount(amount, token, (source,)), _chain(source, chains))
            for token, amount in given
        ),
        *(
            html(
                "gets at least {} on {}, for {}",
                tokens.amount(amount, token, (destination,)), _chain(destination, chains), _account(recipient, root),
            )
            for token, amount, recipient in wanted
        ),
    ]  # fmt: skip


def _call(call: tuple[Address, bytes, int], chain_id: int, chains: Mapping[int, Chain], root: str) -> Html:
    target, data, value = call
    chain = chains.get(chain_id)
    return html(
        "{} on {}{}{}", _account(target, root), _chain(chain_id, chains),
        html(", function <code>0x{}</code>, {}", data[:_SELECTOR].hex(), _count(len(data), "byte")) if data else None,
        html(", with {}", _coins(value, chain)) if value else None,
    )  # fmt: skip


def _coins(value: int, chain: Chain | None) -> str:
    if chain is None:
        return f"{value} base units of the chain's coin"
    return f"{units(value, chain.native_decimals)} {chain.native_symbol}"


def _account(address: Address, root: str) -> Html:
    return identifier(address, f"{root}console/addresses/{address}")


def _chain(chain_id: int, chains: Mapping[int, Chain]) -> str:
    chain = chains.get(chain_id)
    return chain.name if chain else f"chain {chain_id}"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _lines(lines: Sequence[Html]) -> Html:
    shown = [html("<div>{}</div>", each) for each in lines[:_SHOWN_MAX]]
    left = len(lines) - len(shown)
    return html("{}{}", shown, html('<div class="faint">and {} more</div>', left) if left else None)
