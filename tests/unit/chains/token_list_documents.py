"""Token lists to start from: right as they are, wrong where a test changes them."""

from typing import Any

USDC = "0xA0b86991c6218b36c1d19D4a2e9Eb0cE3606eB48"
DAI = "0x6B175474E89094C44Da98b954EedeAC495271d0F"


def entry(**changed: Any) -> dict[str, Any]:
    """A token; a member that is changed to `...` goes."""
    usual = {"chainId": 1, "address": USDC, "symbol": "USDC", "name": "USD Coin", "decimals": 6}
    return {name: value for name, value in (usual | changed).items() if value is not ...}


def document(*tokens: Any, **changed: Any) -> dict[str, Any]:
    """A list of one token or those given; a member that is changed to `...` goes."""
    usual = {
        "name": "Test list", "timestamp": "2026-11-20T10:00:00.000Z",
        "version": {"major": 1, "minor": 0, "patch": 0}, "tokens": list(tokens) or [entry()],
    }  # fmt: skip
    return {name: value for name, value in (usual | changed).items() if value is not ...}
