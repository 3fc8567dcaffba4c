"""What the operations of an intent ask for: their data, decoded, and one line of words. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from muniment.protocol.evm.abi import ADDRESS, BYTES, UINT256, ListOf, TupleOf, decode
from muniment.protocol.evm.address import Address
from muniment.protocol.evm.hex import HexString
from muniment.protocol.evm.selectors import SELECTOR_BYTES, call_in_words
from muniment.protocol.intents.operations import kinds_of
from muniment.protocol.intents.types import AnyIntent, Intent
from muniment.protocol.tokens import NATIVE, Catalogue, units

# Longer data is not decoded: 16 KiB take a millisecond, and honest operations have less than one KiB.
BYTES_MAX: Final = 16 * 1024
_AMOUNTS: Final = ListOf(TupleOf((ADDRESS, UINT256)))
_SWAP: Final = TupleOf((UINT256, UINT256, _AMOUNTS, ListOf(TupleOf((ADDRESS, UINT256, ADDRESS)))))
_TRANSFER: Final = TupleOf((UINT256, ListOf(TupleOf((ADDRESS, UINT256, ADDRESS)))))
_CALL: Final = TupleOf((UINT256, ListOf(TupleOf((ADDRESS, BYTES, UINT256)))))
_DYNAMIC_CALL: Final = TupleOf((UINT256, ListOf(BYTES)))
# Kinds of operations whose data has two chains.
SWAPS: Final = ("Swap", "Cross-chain swap")
_FORMS: Final = {
    **dict.fromkeys(SWAPS, _SWAP), "Transfer": _TRANSFER, "Call": _CALL, "EVM call": _CALL,
    "Dynamic call": _DYNAMIC_CALL,
}  # fmt: skip


class Operation(NamedTuple):
    """One operation of an intent of either form; `values` is its decoded data, None if unreadable."""

    kind: str
    user: Address
    data: HexString
    values: tuple[Any, ...] | None

    @property
    def chain_ids(self) -> tuple[int, ...]:
        """The chains of the operation; its user pays on the first."""
        if self.values is None:
            return ()
        return self.values[:2] if self.kind in SWAPS else self.values[:1]


def operations_of(intent: AnyIntent) -> list[Operation]:
    """The operations of an intent, one or several."""
    if isinstance(intent, Intent):
        found = [(intent.user, intent.data)]
    else:
        found = [(each.user, each.data) for each in intent.operations]
    is_short = sum(len(data) for _, data in found) <= 2 * BYTES_MAX
    return [
        Operation(kind, user, data, _read(kind, data) if is_short else None)
        for kind, (user, data) in zip(kinds_of(intent), found, strict=True)
    ]


class Amount(NamedTuple):
    """A part of a line: a number of base units of a token of a chain."""

    value: int
    token: Address
    chain_id: int


class TokenName(NamedTuple):
    """A part of a line: a token of a chain, or another contract."""

    token: Address
    chain_id: int


class CallData(NamedTuple):
    """A part of a line: the function that the data of a call begin with."""

    data: bytes


# A part of a line; an address is a recipient.
Part: TypeAlias = "str | Address | Amount | TokenName | CallData"
# What a line has of operations, or of transfers, calls or tokens of one; the rest is counted.
_SHOWN_MAX: Final = 2


def line_of(intent: AnyIntent, catalogue: Catalogue) -> list[Part]:
    """`1.5 USDC → at least 1.4 DAI · Base`, in parts; operations after the second are counted."""
    return _joined([_operation(each, catalogue) for each in operations_of(intent)], "; ")


def words_of(intent: AnyIntent, catalogue: Catalogue, named: Callable[[Address], str]) -> str:
    """The line as text; `named` gives addresses."""

    def text(part: Part) -> str:
        if isinstance(part, CallData):
            return call_in_words(part.data) or f"0x{part.data[:SELECTOR_BYTES].hex()} not well known"
        if not isinstance(part, tuple):
            return named(part) if isinstance(part, Address) else part
        unit = catalogue.unit(part.token, part.chain_id)
        if isinstance(part, TokenName):
            return unit[0] if unit else named(part.token)
        if unit is None:
            return f"{part.value} base units of {named(part.token)}"
        return f"{units(part.value, unit[1])} {unit[0]}"

    return "".join(map(text, line_of(intent, catalogue)))


def _operation(operation: Operation, catalogue: Catalogue) -> list[Part]:
    if operation.values is None:
        return [f"{operation.kind} (not readable here)"]
    places = " → ".join(catalogue.chain(each) for each in dict.fromkeys(operation.chain_ids))
    if operation.kind in SWAPS:
        source, destination, given, wanted = operation.values
        pays: list[list[Part]] = [[Amount(amount, token, source)] for token, amount in given]
        gets: list[list[Part]] = [[Amount(amount, token, destination)] for token, amount, _ in wanted]
        return [*_joined(pays, " + "), " → at least ", *_joined(gets, " + "), f" · {places}"]
    chain_id, items = operation.values
    if operation.kind == "Transfer":
        lines: list[list[Part]] = [[Amount(amount, token, chain_id), " to ", to] for token, amount, to in items]
    elif operation.kind == "Dynamic call":
        lines = [[f"{len(items):,} call{'' if len(items) == 1 else 's'}, made up when they run"]]
    else:
        lines = [
            ["call ", CallData(data), " of ", TokenName(target, chain_id), *_coins(" with ", value, chain_id)]
            if data
            else [*_coins("", value, chain_id), " to " if value else "nothing to ", TokenName(target, chain_id)]
            for target, data, value in items
        ]
    return [*_joined(lines, ", "), f" · {places}"]


def _coins(before: str, value: int, chain_id: int) -> list[Part]:
    """An amount of the chain's coin; none if it is 0."""
    return [before, Amount(value, NATIVE, chain_id)] if value else []


def _joined(lines: Sequence[list[Part]], between: str) -> list[Part]:
    """The first of `lines`, and how many follow."""
    parts: list[Part] = [] if lines else ["nothing"]
    for number, line in enumerate(lines[:_SHOWN_MAX]):
        parts += [between, *line] if number else line
    left = len(lines) - _SHOWN_MAX
    return [*parts, f" and {left} more"] if left > 0 else parts


def _read(kind: str, data: HexString) -> tuple[Any, ...] | None:
    return decoded(_FORMS[kind], data) if kind in _FORMS else None


def decoded(form: TupleOf, data: HexString) -> tuple[Any, ...] | None:
    """The values of ABI-encoded data; None if they have another form."""
    try:
        (values,) = decode((form,), data.raw)
    except ValueError:
        return None
    return values
