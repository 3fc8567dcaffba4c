"""The parameters of questions, read from what a function sent, and as a record of a run keeps them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple, cast

from muniment.chains.multicall import READ_GAS_MAX
from muniment.guest.types import Question
from muniment.protocol.errors import InvalidAddress
from muniment.protocol.evm.address import Address
from muniment.protocol.evm.hex import data_of
from muniment.protocol.evm.words import SAFE_INTEGER_MAX
from muniment.protocol.wire import UINT256_MAX

# Each token may use up the gas of two reads, and a call has 25 million: a hundred always fit.
TOKENS_MAX: Final = 20_000_000 // (2 * READ_GAS_MAX)
CHAINS_MAX: Final = 32
# All parameters of a run together, in characters. With the answers (128 KiB) and the log (64 KiB) they fit a record.
PARAMS_CHARACTERS_MAX: Final = 32 * 1024
# A parameter of a question that is never answered is kept up to here, for its reader.
_KEPT_CHARACTERS: Final = 500
_DIGITS_MAX: Final = 78
_ALLOW: Final = "0"
# The parameters of each question, by the names of the field.
_NAMES: Final[Mapping[str, tuple[str, ...]]] = {
    "evmCall": ("to", "chainId", "data", "timestamp"),
    "tokenPrice": ("address", "chainId", "timestamp"),
    "relevantTokens": ("owner", "chainIds", "usdMinAmount", "tokens", "tokenFilter", "timestamp"),
    "subgraph": ("chainId", "subgraphId", "query", "timestamp"),
    "svmAccountsInfo": ("publicKeys", "timestamp"),
    "api": ("url", "method", "timestamp"),
}


class Refused(Exception):
    """A question that gets no answer, whenever it is asked; the text goes to the function."""


class Call(NamedTuple):
    """`evmCall`: a call of a contract."""

    chain_id: int
    to: Address
    data: bytes


class Price(NamedTuple):
    """`tokenPrice`: the price of a token in US dollars."""

    chain_id: int
    token: Address


class Balances(NamedTuple):
    """`relevantTokens`: balances of `tokens` by chain; `least` is in 10^-18 US dollars."""

    owner: Address
    tokens: Mapping[int, list[Address]]
    least: int


Asked = Call | Price | Balances


def read(question: Question, timestamp_ms: int) -> Asked:
    """What a question asks, for a run of a time. Raises `Refused`."""
    params = question.params
    if question.query not in {"evmCall", "tokenPrice", "relevantTokens"}:
        raise Refused(_NEVER.get(question.query, "this question is not answered"))
    if "timestamp" in params and params["timestamp"] != str(timestamp_ms):
        raise Refused("a run is answered at its own time only: leave the timestamp out")
    if question.query == "evmCall":
        data = data_of(params.get("data"))
        if data is None:
            raise Refused("data is not 0x and hex digits")
        return Call(_chain_id(params.get("chainId")), _address(params.get("to"), "to"), data)
    if question.query == "tokenPrice":
        return Price(_chain_id(params.get("chainId")), _address(params.get("address"), "address"))
    return _balances(params)


_NEVER: Final = {
    "subgraph": "subgraphs are not answered: a block decides what a run reads, and a subgraph has none",
    "svmAccountsInfo": "Solana is not answered: this relayer reads EVM chains",
    "api": "an API is not asked: its URL comes from the function, and its answer could not be checked",
}


def _balances(params: Mapping[str, Any]) -> Balances:
    if params.get("tokenFilter") != _ALLOW:
        raise Refused("deny lists are not answered: list the tokens, with tokenFilter 0 (allow)")
    chains = {_chain_id(each) for each in _list(params.get("chainIds"), "chainIds", CHAINS_MAX)}
    tokens: dict[int, list[Address]] = {}
    for each in _list(params.get("tokens"), "tokens", TOKENS_MAX):
        token = cast("dict[str, Any]", each) if isinstance(each, dict) else {}
        chain_id, address = _chain_id(token.get("chainId")), _address(token.get("address"), "tokens")
        if chain_id in chains and address not in tokens.setdefault(chain_id, []):
            tokens[chain_id].append(address)
    least = _number(params.get("usdMinAmount", "0"), "usdMinAmount", UINT256_MAX)
    return Balances(_address(params.get("owner"), "owner"), tokens, least)


def _list(value: object, name: str, length_max: int) -> list[Any]:
    if not isinstance(value, list | tuple):
        raise Refused(f"{name} is not a list")
    items = list(cast("list[Any]", value))
    if len(items) > length_max:
        raise Refused(f"{name} has more than {length_max} entries")
    return items


def _number(value: object, name: str, at_most: int) -> int:
    if not isinstance(value, str) or not (value.isascii() and value.isdecimal() and len(value) <= _DIGITS_MAX):
        raise Refused(f"{name} is not a number")
    number = int(value)
    if number > at_most:
        raise Refused(f"{name} is too large")
    return number


def _chain_id(value: object) -> int:
    return _number(value, "chainId", SAFE_INTEGER_MAX)


def _address(value: object, name: str) -> Address:
    """Any letter case: a function may have changed it."""
    try:
        return Address.parse(value.lower() if isinstance(value, str) else "")
    except InvalidAddress:
        raise Refused(f"{name} is not an address of an EVM chain") from None


def length_of(question: Question) -> int:
    """The characters of a question's parameters."""
    return sum(_length(each) for each in question.params.values())


def _length(value: object) -> int:
    if isinstance(value, Mapping):
        return sum(_length(each) for each in cast("Mapping[str, object]", value).values())
    if isinstance(value, list | tuple):
        return sum(_length(each) for each in cast("list[object]", value))
    return len(value) if isinstance(value, str) else 0


def kept(question: Question, *, is_short: bool = True) -> dict[str, str | list[str]]:
    """The parameters as a record keeps them: texts and lists of texts, a token as `chainId:address`.

    With `is_short` false, long texts are cut.
    """
    length_max = PARAMS_CHARACTERS_MAX if is_short else _KEPT_CHARACTERS
    names = [name for name in _NAMES[question.query] if name in question.params]
    return {name: _kept(question.params[name], length_max) for name in names}


def _kept(value: object, length_max: int) -> str | list[str]:
    if isinstance(value, list | tuple):
        return [_kept_text(each, length_max) for each in cast("list[object]", value)[:_KEPT_CHARACTERS]]
    return _kept_text(value, length_max)


def _kept_text(value: object, length_max: int) -> str:
    if isinstance(value, Mapping):
        token = cast("Mapping[str, object]", value)
        value = f"{token.get('chainId', '')}:{token.get('address', '')}"
    return plain(str(value))[:length_max]


def plain(text: str) -> str:
    """`text` as a registry stores it: U+FFFD for U+0000, other control characters and halves of surrogate pairs."""
    return "".join("\ufffd" if each < " " or "\ud800" <= each <= "\udfff" else each for each in text)
