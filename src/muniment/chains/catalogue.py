"""The EVM chains that a registry knows, and the operator's chains file with their settings."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Final, TypeVar
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

from muniment.file_members import sample_of, unknown_member, wrong_member
from muniment.protocol.evm.address import Address
from muniment.protocol.tokens import NATIVE
from muniment.protocol.wire import decode_text
from muniment.text_files import read_text

T = TypeVar("T")
# Where Multicall3 is on every chain of the catalogue (chain definitions of viem; mds1/multicall3, README).
MULTICALL3: Final = Address("0xcA11bde05977b3631167028862bE2a173976CA11")
_Text = Annotated[str, Meta(min_length=1, pattern=r"^[^\0]*$")]
_ADDRESS_SAMPLE: Final = '"0x8be430d29a2c5692f9345a28506b849C6a99eDaA"'
# What may be written for each member of a chains file.
SAMPLES: Final = {
    "chains": "a table [[chains]] with id, and with what differs from the catalogue",
    "chains.id": "id = 8453, a chain id of EIP-155",
    "chains.name": 'name = "Base"',
    "chains.rpc_urls": 'rpc_urls = ["https://mainnet.base.org"], a list of URLs of nodes',
    "chains.settler": f"settler = {_ADDRESS_SAMPLE}, the address of a settlement contract",
    "chains.settlers": f"settlers = [{_ADDRESS_SAMPLE}], addresses of settlement contracts, the newest first",
    "chains.proposal_signers": f"proposal_signers = [{_ADDRESS_SAMPLE}], a list of addresses",
    "chains.settler_block": "settler_block = 45000000, a block number",
    "chains.confirmations": "confirmations = 3, a whole number from 0 to 10000",
    "chains.multicall3": f'multicall3 = "{MULTICALL3}", an address',
    "chains.native_symbol": 'native_symbol = "ETH"',
    "chains.native_decimals": "native_decimals = 18, a whole number from 0 to 255",
    "chains.native_logo": 'native_logo = "https://example.org/eth.svg"',
    "chains.token_lists": 'token_lists = ["tokens.json"], a list of files or URLs',
    "chains.feeds": 'feeds = {"0x… (a token)" = {feed = "0x…", heartbeat = 3600}}, with seconds up to 30 days',
    "chains.price_slug": 'price_slug = "base", the name at DefiLlama',
    "chains.block_tag": 'block_tag = "latest", "safe" or "finalized"',
    "chains.explorer_url": 'explorer_url = "https://basescan.org"',
}


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

    id: Annotated[int, Meta(ge=1, le=2**53 - 1)]
    name: _Text
    rpc_urls: tuple[str, ...] = field(default=(), repr=False)
    settlers: tuple[Address, ...] = ()
    proposal_signers: tuple[Address, ...] = ()
    # A chain of one block a millisecond would need 285,000 years for more.
    settler_block: Annotated[int, Meta(ge=0, le=2**53 - 1)] | None = None
    confirmations: Annotated[int, Meta(ge=0, le=10_000)] | None = None
    multicall3: Address = MULTICALL3
    native_symbol: _Text = "ETH"
    native_decimals: Annotated[int, Meta(ge=0, le=255)] = 18
    native_logo: _Text | None = None
    token_lists: tuple[_Text, ...] = ()
    feeds: Mapping[Address, tuple[Address, int]] = field(default_factory=lambda: MappingProxyType({}))
    price_slug: _Text | None = None
    block_tag: Annotated[str, Meta(pattern=r"^(latest|safe|finalized)\Z")] = "latest"
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
    file. Raises `ValueError` that names the file and the member but no value, also for an unreadable file.
    """
    if not file:
        return CATALOGUE
    path = Path(file)
    try:
        document = tomllib.loads(read_text(path))
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}; `chains_file` names the chains file") from None
    except ValueError as error:  # TOMLDecodeError and UnicodeDecodeError; tomllib quotes no line of the file
        raise ValueError(f"{path}: not TOML: {error}") from None
    try:
        return MappingProxyType(_over_catalogue(document, path.parent))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


class _Feed(msgspec.Struct, forbid_unknown_fields=True):
    feed: Address
    heartbeat: Annotated[int, Meta(ge=1, le=30 * 86_400)]


def _over_catalogue(document: dict[str, Any], directory: Path) -> dict[int, Chain]:
    for name in document.keys() - {"chains"}:
        raise ValueError(unknown_member(name, SAMPLES))
    chains, given = dict(CATALOGUE), set[int]()
    for number, table in enumerate(_read(document.get("chains", []), list[dict[str, Any]], "chains")):
        chain = _merged(chains, table, f"chains[{number}]", directory)
        if chain.id in given:
            raise ValueError(f"chains[{number}].id: chain {chain.id} is given twice")
        given.add(chain.id)
        chains[chain.id] = chain
    return chains


def _merged(known: Mapping[int, Chain], table: dict[str, Any], where: str, directory: Path) -> Chain:
    if "settler" in table:
        if "settlers" in table:
            raise ValueError(f"{where}.settler: settler and settlers are both given: use one of them")
        table["settlers"] = [_read(table.pop("settler"), Address, f"{where}.settler")]
    for name in table.keys() - {each.name for each in fields(Chain)}:
        raise ValueError(unknown_member(f"{where}.{name}", SAMPLES))
    feeds = _feeds(_read(table.get("feeds", {}), dict[str, Any], f"{where}.feeds"), f"{where}.feeds")
    # The file may leave the name out for a chain of the catalogue.
    given = _read({"name": "unknown", **table, "feeds": {}}, Chain, where)
    if given.id not in known and "name" not in table:
        raise ValueError(f"{where}.name is missing: a chain that is not in the catalogue needs a name")
    for name, addresses in (("settlers", given.settlers), ("proposal_signers", given.proposal_signers)):
        if len(set(addresses)) != len(addresses):
            raise ValueError(f"{where}.{name}: an address is given twice")
    for place, url in enumerate(given.rpc_urls):
        _check_url(url, f"{where}.rpc_urls[{place}]")
    given = replace(
        given, feeds=feeds, token_lists=tuple(_beside(directory, entry) for entry in given.token_lists),
        explorer_url=given.explorer_url and _explorer_url(given.explorer_url, f"{where}.explorer_url"),
    )  # fmt: skip
    return replace(known.get(given.id, given), **{name: getattr(given, name) for name in table})


def _beside(directory: Path, entry: str) -> str:
    return entry if entry.startswith(("http://", "https://")) else str(directory / entry)


def _check_url(url: str, where: str) -> None:
    """Raises `ValueError` without the URL, which may hold a key."""
    try:
        parts = urlsplit(url)
        well_formed = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        well_formed = False
    if not well_formed or "\0" in url:
        raise ValueError(f"{where} is no http or https URL: write {sample_of(where, SAMPLES)}")


def _explorer_url(url: str, where: str) -> str:
    """A URL to which paths can be added: without a query, a fragment and a user name, which would stand in links."""
    _check_url(url, where)
    parts = urlsplit(url)
    if parts.query or parts.fragment or parts.username is not None or url.endswith(("?", "#")):
        raise ValueError(f"{where} has a user name, a query or a fragment: write the URL without it")
    return url.rstrip("/")


def _feeds(given: dict[str, Any], where: str) -> Mapping[Address, tuple[Address, int]]:
    """Tables `"0x… (token)" = {feed = "0x…", heartbeat = 3600}`."""
    feeds: dict[Address, tuple[Address, int]] = {}
    for token, table in given.items():
        entry = _read(table, _Feed, f"{where}.{token}")
        feeds[_read(token, Address, f"{where}.{token}")] = (entry.feed, entry.heartbeat)
    return MappingProxyType(feeds)


def _read(value: object, kind: type[T], where: str) -> T:
    """`value` as a `kind`. Raises `ValueError` with the place of a wrong member in the file."""
    try:
        return msgspec.convert(value, kind, dec_hook=decode_text)
    except msgspec.ValidationError as error:
        raise ValueError(wrong_member(error, SAMPLES, where)) from None
