// Swaps one token for another, for the wallet that signed the trigger.

import { swap } from "./host"

@external("index", "input.chainId") declare const chainId: u32
@external("index", "input.tokenIn") declare var tokenIn: string | null
@external("index", "input.amountIn") declare var amountIn: string | null
@external("index", "input.tokenOut") declare var tokenOut: string | null
@external("index", "input.minAmountOut") declare var minAmountOut: string | null
@external("index", "input.fee") declare var fee: string | null

export function main(): void {
  swap(chainId, tokenIn!, amountIn!, tokenOut!, minAmountOut!, fee!)
}
