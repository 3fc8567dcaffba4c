"""The EVM chains that a registry knows, and the operator's chains file with their settings."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, TypeVar, cast
from urllib.parse import urlsplit

from muniment.protocol.errors import Refusal
from muniment.protocol.evm.address import Address

_T = TypeVar("_T")

# Where Multicall3 is on every chain of the catalogue (chain definitions of viem; mds1/multicall3, README).
MULTICALL3: Final = Address("0xcA11bde05977b3631167028862bE2a173976CA11")
# The address under which the coin of a chain is listed with its tokens.
NATIVE: Final = Address("0xEeeeeEeeeEeEeeEeEeEeeEEEeeeeEeeeeeeeEEeE")
_CHAIN_ID_MAX: Final = 2**53 - 1
_DECIMALS_MAX: Final = 255
# Blocks: a chain of one block a millisecond would need 285,000 years for more.
_BLOCK_MAX: Final = 2**53 - 1
_CONFIRMATIONS_MAX: Final = 10_000
_BLOCK_TAGS: Final = ("latest", "safe", "finalized")


@dataclass(frozen=True, slots=True)
class Chain:
    """One EVM chain (EIP-155). Without an RPC URL nothing is read from it.

    `settlers` are settlement contracts, the newest first: all of them are followed, from block `settler_block` on
    (None: from the newest). A block is read when it has `confirmations` blocks on top (None: the number in the
    settings). `proposal_signers` are addresses whose signatures under proposals count like a solver's, as in the
    controller of the settlement contracts. `feeds` gives a token's Chainlink price feed in US dollars and its heartbeat
    in seconds, the native coin's under `NATIVE`. `explorer_url` is that of a block explorer with the paths of EIP-3091,
    without a slash at its end. `price_slug` is the chain's name at DefiLlama. `token_lists` are files
    or URLs in addition to the packaged list. RPC URLs carry keys: they are never shown.
    """

    id: int
    name: str
    rpc_urls: tuple[str, ...] = field(default=(), repr=False)
    settlers: tuple[Address, ...] = ()
    proposal_signers: tuple[Address, ...] = ()
    settler_block: int | None = None
    confirmations: int | None = None
    multicall3: Address = MULTICALL3
    native_symbol: str = "ETH"
    native_decimals: int = 18
    native_logo: str | None = None
    token_lists: tuple[str, ...] = ()
    feeds: Mapping[Address, tuple[Address, int]] = field(default_factory=lambda: MappingProxyType({}))
    price_slug: str | None = None
    block_tag: str = "latest"
    explorer_url: str | None = None

    @property
    def settler(self) -> Address | None:
        """The spender whose allowances are read: the newest settlement contract."""
        return self.settlers[0] if self.settlers else None


# The settlement contracts of both generations, each at one address on every chain that has it. Source:
# mimic-protocol/contracts, packages/evm/ignition/deployments/chain-*/deployed_addresses.json: the first as
# `Create3Settler#Settler` (until 30 April 2026; for Base Sepolia also later), the second as `Create3Proxy#Proxy`.
FIRST_SETTLER: Final = Address("0x609d831C0068844e11eF85a273c7F356212Fd6D1")
SECOND_SETTLER: Final = Address("0x8be430d29a2c5692f9345a28506b849C6a99eDaA")
_SETTLERS: Final = (SECOND_SETTLER, FIRST_SETTLER)
_WETH: Final = Address("0xC02aaA39b223FE8D0A0e5C4F27eAD9083C756Cc2")
_USDC: Final = Address("0xA0b86991c6218b36c1d19D4a2e9Eb0cE3606eB48")
# Chainlink's reference feeds on Ethereum: ETH / USD (heartbeat 1 h) and USDC / USD (24 h).
_ETH_USD: Final = (Address("0x5f4eC3Df9cbd43714FE2740f5E3616155c5b8419"), 3600)
_USDC_USD: Final = (Address("0x8fFfFfd4AfB6115b954Bd326cbe7B4BA576818f6"), 86_400)

# Id, name, symbol of the coin, name at DefiLlama, block explorer. Names as in the chain registry of the Ethereum
# community (ethereum-lists), shortened to common use; explorers are the first there that follows EIP-3091.
_MAINNETS: Final = (
    (1, "Ethereum", "ETH", "ethereum", "https://etherscan.io"),
    (10, "OP Mainnet", "ETH", "optimism", "https://optimistic.etherscan.io"),
    (56, "BNB Smart Chain", "BNB", "bsc", "https://bscscan.com"),
    (100, "Gnosis", "xDAI", "xdai", "https://gnosisscan.io"),
    (137, "Polygon", "POL", "polygon", "https://polygonscan.com"),
    (146, "Sonic", "S", "sonic", "https://sonicscan.org"),
    (8453, "Base", "ETH", "base", "https://basescan.org"),
    (42161, "Arbitrum One", "ETH", "arbitrum", "https://arbiscan.io"),
    (43114, "Avalanche C-Chain", "AVAX", "avax", "https://snowtrace.io"),
)
_FEEDS: Final[dict[int, Mapping[Address, tuple[Address, int]]]] = {
    1: MappingProxyType({NATIVE: _ETH_USD, _WETH: _ETH_USD, _USDC: _USDC_USD})
}
_NO_FEEDS: Final[Mapping[Address, tuple[Address, int]]] = MappingProxyType({})
CATALOGUE: Final[Mapping[int, Chain]] = MappingProxyType(
    {
        number: Chain(
            number, name, settlers=_SETTLERS, native_symbol=symbol, price_slug=slug, explorer_url=explorer,
            feeds=_FEEDS.get(number, _NO_FEEDS),
        )
        for number, name, symbol, slug, explorer in _MAINNETS
    }
    | {
        # Its explorer is by the makers of that of Base.
        84532: Chain(84532, "Base Sepolia", settlers=(FIRST_SETTLER,), explorer_url="https://sepolia.basescan.org")
    }
)  # fmt: skip


def load_chains(file: Path | str | None) -> Mapping[int, Chain]:
    """The catalogue, changed by a chains file, if one is named: TOML with `[[chains]]` tables of `Chain`'s members.

    A member that the file leaves out keeps its value from the catalogue. Paths of token lists are relative to the
    file. Raises `ValueError` that names the file and the member but no value, and `OSError` for an unreadable file.
    """
    if not file:
        return CATALOGUE
    path = Path(file)
    try:
        document = tomllib.loads(path.read_text("utf-8"))
    except ValueError as error:  # TOMLDecodeError and UnicodeDecodeError; tomllib quotes no line of the file
        raise ValueError(f"{path}: not TOML: {error}") from None
    try:
        return MappingProxyType(_over_catalogue(document, path.parent))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _over_catalogue(document: dict[str, Any], directory: Path) -> dict[int, Chain]:
    for name in document.keys() - {"chains"}:
        raise ValueError(f"{name} is unknown; chains are [[chains]] tables")
    chains, given = dict(CATALOGUE), set[int]()
    tables: list[dict[str, Any]] = _items(document.get("chains", []), dict, "chains")
    for number, table in enumerate(tables):
        chain = _merged(chains, table, f"chains[{number}]", directory)
        if chain.id in given:
            raise ValueError(f"chains[{number}].id: chain {chain.id} is given twice")
        given.add(chain.id)
        chains[chain.id] = chain
    return chains


def _merged(known: Mapping[int, Chain], table: dict[str, Any], where: str, directory: Path) -> Chain:
    for name in table.keys() - _MEMBERS.keys() - {"id"}:
        raise ValueError(f"{where}.{name}: unknown member")
    chain_id = _integer(table.get("id"), 1, _CHAIN_ID_MAX, f"{where}.id")
    members = {name: _MEMBERS[name](value, f"{where}.{name}") for name, value in table.items() if name != "id"}
    if "settler" in members:
        if "settlers" in members:
            raise ValueError(f"{where}.settler: settler and settlers are both given: use one of them")
        members["settlers"] = (members.pop("settler"),)
    if "token_lists" in members:
        members["token_lists"] = tuple(_beside(directory, entry) for entry in members["token_lists"])
    if chain_id in known:
        return replace(known[chain_id], **members)
    if "name" not in members:
        raise ValueError(f"{where}.name: a chain that is not in the catalogue needs a name")
    return Chain(chain_id, **members)


def _beside(directory: Path, entry: str) -> str:
    return entry if entry.startswith(("http://", "https://")) else str(directory / entry)


def _text(value: object, where: str) -> str:
    if not isinstance(value, str) or not value or "\0" in value:
        raise ValueError(f"{where}: expected text")
    return value


def _integer(value: object, low: int, high: int, where: str) -> int:
    if type(value) is not int or not low <= value <= high:
        raise ValueError(f"{where}: expected an integer from {low} to {high}")
    return value


def _address(value: object, where: str) -> Address:
    try:
        return Address.parse(_text(value, where))
    except Refusal as error:
        raise ValueError(f"{where}: {error.detail}") from None


def _addresses(value: object, where: str) -> tuple[Address, ...]:
    found = tuple(_address(each, f"{where}[{place}]") for place, each in enumerate(_items(value, str, where)))
    if len(set(found)) != len(found):
        raise ValueError(f"{where}: an address is given twice")
    return found


def _url(value: object, where: str) -> str:
    """Raises `ValueError` without the URL, which may hold a key."""
    text = _text(value, where)
    try:
        parts = urlsplit(text)
        well_formed = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        well_formed = False
    if not well_formed:
        raise ValueError(f"{where}: expected an http or https URL")
    return text


def _explorer_url(value: object, where: str) -> str:
    """A URL to which paths can be added: without a query, a fragment and a user name, which would stand in links."""
    url = _url(value, where)
    parts = urlsplit(url)
    if parts.query or parts.fragment or parts.username is not None or url.endswith(("?", "#")):
        raise ValueError(f"{where}: expected a URL without a user name, a query and a fragment")
    return url.rstrip("/")


def _items(value: object, kind: type[_T], where: str) -> list[_T]:
    if not isinstance(value, list):
        raise ValueError(f"{where}: expected a list")  # noqa: TRY004 - a fault of the file, reported as ValueError
    items = cast("list[object]", value)
    if not all(isinstance(item, kind) for item in items):
        raise ValueError(f"{where}: expected a list of {'tables' if kind is dict else 'texts'}")
    return cast("list[_T]", items)


def _block_tag(value: object, where: str) -> str:
    if value not in _BLOCK_TAGS:
        raise ValueError(f"{where}: expected one of {', '.join(_BLOCK_TAGS)}")
    return cast("str", value)


def _feeds(value: object, where: str) -> Mapping[Address, tuple[Address, int]]:
    """Tables `"0x… (token)" = {feed = "0x…", heartbeat = 3600}`."""
    if not isinstance(value, dict):
        raise ValueError(f"{where}: expected a table")  # noqa: TRY004 - a fault of the file, reported as ValueError
    feeds: dict[Address, tuple[Address, int]] = {}
    for token, entry in cast("dict[str, object]", value).items():
        at = f"{where}.{token}"
        if not isinstance(entry, dict) or set(cast("dict[str, Any]", entry)) != {"feed", "heartbeat"}:
            raise ValueError(f"{at}: expected a table of feed and heartbeat")
        table = cast("dict[str, Any]", entry)
        heartbeat = _integer(table["heartbeat"], 1, 30 * 86_400, f"{at}.heartbeat")
        feeds[_address(token, at)] = (_address(table["feed"], f"{at}.feed"), heartbeat)
    return MappingProxyType(feeds)


_MEMBERS: Final[Mapping[str, Callable[[object, str], Any]]] = MappingProxyType(
    {
        "name": _text,
        "rpc_urls": lambda value, where: tuple(_url(url, where) for url in _items(value, str, where)),
        "settler": _address,
        "settlers": _addresses,
        "proposal_signers": _addresses,
        "settler_block": lambda value, where: _integer(value, 0, _BLOCK_MAX, where),
        "confirmations": lambda value, where: _integer(value, 0, _CONFIRMATIONS_MAX, where),
        "multicall3": _address,
        "native_symbol": _text,
        "native_decimals": lambda value, where: _integer(value, 0, _DECIMALS_MAX, where),
        "native_logo": _text,
        "token_lists": lambda value, where: tuple(_text(entry, where) for entry in _items(value, str, where)),
        "feeds": _feeds,
        "price_slug": _text,
        "block_tag": _block_tag,
        "explorer_url": _explorer_url,
    }
)
