"""Functions of contracts by their selector: the first four bytes of keccak-256 of name and types."""

from __future__ import annotations

from functools import cache
from typing import Final

from muniment.protocol.evm.hashing import keccak256

# Bytes of call data that name the function.
SELECTOR_BYTES: Final = 4
# The functions that wallets call most. Four bytes are few: another function may have the same.
_WELL_KNOWN: Final = (
    # ERC-20, ERC-2612, and what older tokens add
    "transfer(address,uint256)", "approve(address,uint256)", "transferFrom(address,address,uint256)",
    "increaseAllowance(address,uint256)", "decreaseAllowance(address,uint256)",
    "permit(address,address,uint256,uint256,uint8,bytes32,bytes32)",
    "mint(address,uint256)", "burn(uint256)", "burnFrom(address,uint256)", "mint(uint256)", "mint()",
    "balanceOf(address)", "allowance(address,address)",
    # ERC-721 and ERC-1155
    "safeTransferFrom(address,address,uint256)", "safeTransferFrom(address,address,uint256,bytes)",
    "setApprovalForAll(address,bool)", "safeTransferFrom(address,address,uint256,uint256,bytes)",
    "safeBatchTransferFrom(address,address,uint256[],uint256[],bytes)",
    # WETH9
    "deposit()", "withdraw(uint256)",
    # ERC-4626
    "deposit(uint256,address)", "mint(uint256,address)", "withdraw(uint256,address,address)",
    "redeem(uint256,address,address)",
    # Permit2
    "approve(address,address,uint160,uint48)", "transferFrom(address,address,uint160,address)",
    # Uniswap v2 and its forks
    "swapExactTokensForTokens(uint256,uint256,address[],address,uint256)",
    "swapTokensForExactTokens(uint256,uint256,address[],address,uint256)",
    "swapExactETHForTokens(uint256,address[],address,uint256)",
    "swapETHForExactTokens(uint256,address[],address,uint256)",
    "swapExactTokensForETH(uint256,uint256,address[],address,uint256)",
    "swapTokensForExactETH(uint256,uint256,address[],address,uint256)",
    "swapExactTokensForTokensSupportingFeeOnTransferTokens(uint256,uint256,address[],address,uint256)",
    "swapExactETHForTokensSupportingFeeOnTransferTokens(uint256,address[],address,uint256)",
    "swapExactTokensForETHSupportingFeeOnTransferTokens(uint256,uint256,address[],address,uint256)",
    "addLiquidity(address,address,uint256,uint256,uint256,uint256,address,uint256)",
    "addLiquidityETH(address,uint256,uint256,uint256,address,uint256)",
    "removeLiquidity(address,address,uint256,uint256,uint256,address,uint256)",
    "removeLiquidityETH(address,uint256,uint256,uint256,address,uint256)",
    # Uniswap v3: routers, positions and the universal router
    "exactInputSingle((address,address,uint24,address,uint256,uint256,uint256,uint160))",
    "exactInputSingle((address,address,uint24,address,uint256,uint256,uint160))",
    "exactInput((bytes,address,uint256,uint256,uint256))", "exactInput((bytes,address,uint256,uint256))",
    "exactOutputSingle((address,address,uint24,address,uint256,uint256,uint256,uint160))",
    "exactOutputSingle((address,address,uint24,address,uint256,uint256,uint160))",
    "mint((address,address,uint24,int24,int24,uint256,uint256,uint256,uint256,address,uint256))",
    "increaseLiquidity((uint256,uint256,uint256,uint256,uint256,uint256))",
    "decreaseLiquidity((uint256,uint128,uint256,uint256,uint256))",
    "collect((uint256,address,uint128,uint128))",
    "execute(bytes,bytes[],uint256)", "execute(bytes,bytes[])",
    "unwrapWETH9(uint256,address)", "sweepToken(address,uint256,address)", "refundETH()",
    # Several calls in one
    "multicall(bytes[])", "multicall(uint256,bytes[])", "multicall(bytes32,bytes[])",
    "aggregate((address,bytes)[])", "tryAggregate(bool,(address,bytes)[])", "aggregate3((address,bool,bytes)[])",
    "aggregate3Value((address,bool,uint256,bytes)[])", "multiSend(bytes)",
    # Curve
    "exchange(int128,int128,uint256,uint256)", "exchange(uint256,uint256,uint256,uint256)",
    "exchange_underlying(int128,int128,uint256,uint256)", "add_liquidity(uint256[2],uint256)",
    "add_liquidity(uint256[3],uint256)", "remove_liquidity_one_coin(uint256,int128,uint256)",
    # Balancer v2
    "swap((bytes32,uint8,address,address,uint256,bytes),(address,bool,address,bool),uint256,uint256)",
    "joinPool(bytes32,address,address,(address[],uint256[],bytes,bool))",
    "exitPool(bytes32,address,address,(address[],uint256[],bytes,bool))",
    # Aave v2 and v3
    "supply(address,uint256,address,uint16)", "deposit(address,uint256,address,uint16)",
    "withdraw(address,uint256,address)", "borrow(address,uint256,uint256,uint16,address)",
    "repay(address,uint256,uint256,address)", "setUserUseReserveAsCollateral(address,bool)",
    "liquidationCall(address,address,address,uint256,bool)",
    "flashLoanSimple(address,address,uint256,bytes,uint16)",
    # Compound v2 and v3
    "redeem(uint256)", "redeemUnderlying(uint256)", "borrow(uint256)", "repayBorrow(uint256)",
    "supply(address,uint256)", "withdraw(address,uint256)", "claimComp(address)",
    # Staking and rewards
    "stake(uint256)", "stake()", "unstake(uint256)", "getReward()", "claim()", "claim(address)", "claimRewards()",
    "exit()", "harvest()", "compound()", "deposit(uint256)", "deposit(uint256,uint256)", "withdraw(uint256,uint256)",
    "withdraw()", "withdrawAll()", "submit(address)", "wrap(uint256)", "unwrap(uint256)", "delegate(address)",
    # Governance, ownership and proxies
    "castVote(uint256,uint8)", "propose(address[],uint256[],bytes[],string)", "queue(uint256)", "execute(uint256)",
    "transferOwnership(address)", "renounceOwnership()", "acceptOwnership()", "upgradeTo(address)",
    "upgradeToAndCall(address,bytes)", "pause()", "unpause()", "grantRole(bytes32,address)",
    # Safe
    "execTransaction(address,uint256,bytes,uint8,uint256,uint256,uint256,address,address,bytes)",
)  # fmt: skip


def call_in_words(data: bytes) -> str:
    """The name and the types of the well-known function that call data begins with; empty for any other."""
    return _signatures().get(data[:SELECTOR_BYTES], "")


@cache
def _signatures() -> dict[bytes, str]:
    return {keccak256(each.encode())[:SELECTOR_BYTES]: each for each in _WELL_KNOWN}
