// Calls a contract with the data and the value that its owner signed.

import { invoke } from "./host"

@external("index", "input.chainId") declare const chainId: u32
@external("index", "input.target") declare var target: string | null
@external("index", "input.data") declare var data: string | null
@external("index", "input.value") declare var value: string | null
@external("index", "input.feeToken") declare var feeToken: string | null
@external("index", "input.fee") declare var fee: string | null

export function main(): void {
  invoke(chainId, target!, data!, value!, feeToken!, fee!)
}
