"""Data of operations and proposals in the encoding of the settlement contracts, on Base with packaged tokens."""

from __future__ import annotations

from eth_abi.abi import encode

from builders import Wallet

BASE = 8453
USDC = "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913"
DAI = "0x50c5725949A6F0c72E6C4a641F24049A917DB0Cb"
# DAI of OP Mainnet.
OP_DAI = "0xDA10009cBd5D07dd0CeCc66161FC93D7c9000da1"
COIN = "0xEeeeeEeeeEeEeeEeEeEeeEEEeeeeEeeeeeeeEEeE"
RECIPIENT = Wallet(95).address


def swap_data(source: int = BASE, destination: int = BASE, *, given: int = 1_500_000, wanted: int = 14 * 10**17) -> str:
    """USDC of Base for DAI of Base or OP Mainnet."""
    form = "(uint256,uint256,(address,uint256)[],(address,uint256,address)[])"
    return _hex(
        form, (source, destination, [(USDC, given)], [(DAI if destination == BASE else OP_DAI, wanted, RECIPIENT)])
    )


def transfer_data(chain_id: int = BASE, *, token: str = USDC, amount: int = 250_000, count: int = 1) -> str:
    """Several transfers of the same amount."""
    return _hex("(uint256,(address,uint256,address)[])", (chain_id, [(token, amount, RECIPIENT)] * count))


def call_data(chain_id: int = BASE, *, data: bytes = bytes.fromhex("a9059cbb") + bytes(64), value: int = 0) -> str:
    """One call, of `transfer(address,uint256)` unless `data` says otherwise."""
    return _hex("(uint256,(address,bytes,uint256)[])", (chain_id, [(USDC, data, value)]))


def dynamic_call_data(count: int, chain_id: int = BASE) -> str:
    """Calls whose data is made up when they run."""
    return _hex("(uint256,bytes[])", (chain_id, [b"\x01"] * count))


def offer_data(*amounts: int) -> str:
    """A solver's offer for a swap: the amounts that come out of it."""
    return _hex("(address,bytes,uint256[])", (Wallet(96).address, b"\x01\x02", list(amounts)))


def _hex(form: str, values: object) -> str:
    return "0x" + encode([form], [values]).hex()
