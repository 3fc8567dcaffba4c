"""The money in the inputs of a trigger: pairs of tokens and amounts, in units where every named chain agrees."""

from __future__ import annotations

from typing import Any

from each_row import each_row
from muniment.chains.catalogue import NATIVE
from muniment.chains.units import packaged_catalogue
from muniment.protocol.triggers.amounts import money_of

CATALOGUE = packaged_catalogue()
USDC, WETH = "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913", "0x4200000000000000000000000000000000000006"
OTHER = "0x1111111111111111111111111111111111111111"
U = "uint256"
WHOLE: dict[str, Any] = {"token": {"address": USDC, "chainId": "8453"}, "amount": "1.5"}
LONG = "1" + "0" * 5000


def said(kinds: dict[str, str], *values: Any) -> list[str]:
    return [each.words(CATALOGUE) for each in money_of(dict(zip(kinds, values, strict=True)), kinds, CATALOGUE)]


CHAIN = {"chainId": "uint32"}
TO = {"token": "address", "amount": U}
SWAP = {"tokenIn": "address", "amountIn": U, "tokenOut": "address", "minAmountOut": U}


@each_row(
    ("kinds", "values", "words"),
    [
        (CHAIN | TO, (8453, USDC, "1000000"), ["1 USDC (1000000) on Base"]),
        (CHAIN | TO, ("0x2105", USDC.lower(), "0xf4240"), ["1 USDC (1000000) on Base"]),
        (CHAIN | TO, (8453, OTHER, 7), [f"7 base units of {OTHER} on Base"]),
        (CHAIN | TO, (8453, NATIVE, 10**18), ["1 ETH (1000000000000000000) on Base"]),
        (TO, (USDC, "5"), [f"5 base units of {USDC}"]),
        (
            CHAIN | SWAP, (8453, USDC, "100000000", WETH, "29000000000000000"),
            ["100 USDC (100000000) on Base", "0.029 WETH (29000000000000000) on Base"],
        ),
        (
            {"fromChain": "uint32", "toChain": "uint256"} | TO, (8453, 10, USDC, "5"),
            [f"5 base units of {USDC} on Base and OP Mainnet"],
        ),
        (
            {"fromChain": "uint32", "toChain": "uint256"} | TO, (8453, 10, WETH, "5"),
            ["0.000000000000000005 WETH (5) on Base and OP Mainnet"],
        ),
        (
            {"sell_token": "address", "buy_token": "address", "sell_amount": U} | CHAIN, (USDC, WETH, 1, 8453),
            ["WETH on Base", "0.000001 USDC (1) on Base"],
        ),
        (
            {"chainId": "uint32", "token0": "address", "amount0": U, "amount1": U}, (8453, USDC, 1, 2),
            ["0.000001 USDC (1) on Base"],
        ),
        ({"pay": "TokenAmount"}, (WHOLE,), ["1.5 USDC (1500000) on Base"]),
        ({"pay": "TokenAmount"}, ({**WHOLE, "amount": "0.0000001"},), ["0.0000001 USDC on Base"]),
        ({"pay": "TokenAmount"}, ({**WHOLE, "amount": LONG},), [f"1{'0' * 19}…{'0' * 20} USDC on Base"]),
        (
            {"pay": "TokenAmount"}, ({"token": {"address": OTHER, "chainId": "77"}, "amount": "1.5"},),
            [f"1.5 of {OTHER} on chain 77"],
        ),
        ({"asset": "Token", "amount": U}, (WHOLE["token"], "1000000"), ["1 USDC (1000000) on Base"]),
        ({"what": "Token", "amount": U}, (WHOLE["token"], "1000000"), ["USDC on Base"]),
        ({"tokenOut": "Token", "amount": U}, (WHOLE["token"], "1000000"), ["USDC on Base"]),
        ({"chainlinkRound": U, "token": "address", "amount": U}, (10, USDC, "5"), [f"5 base units of {USDC}"]),
        ({"what": "Token", "amountOut": U}, (WHOLE["token"], "1000000"), ["USDC on Base"]),
        (CHAIN | {"token": "address", "amount": "string"}, (8453, USDC, "10.5"), ["USDC on Base"]),
        (CHAIN | {"token": "address", "amount": "int256"}, (8453, USDC, -5), ["USDC on Base"]),
        (CHAIN | {"token": "address", "amountBps": U}, (8453, USDC, 30), ["USDC on Base"]),
        (CHAIN | {"recipient": "address", "amount": U}, (8453, USDC, 30), []),
        (CHAIN | TO | {"other": "Token"}, (8453, USDC, 5, {"address": NATIVE, "chainId": 1}),
         [f"5 base units of {USDC} on Base and Ethereum", "ETH on Ethereum"]),
        ({}, (), []),
    ],
)  # fmt: skip
def test_money_is_in_words(kinds: dict[str, str], values: tuple[Any, ...], words: list[str]) -> None:
    assert said(kinds, *values) == words
