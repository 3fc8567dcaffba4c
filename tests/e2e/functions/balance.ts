// Sends a transfer when the owner has more of a token than a bound. The balance is read from the contract.

import { call, decoded, encoded, info, isLess, transfer, user } from "./host"

@external("index", "input.chainId") declare const chainId: u32
@external("index", "input.token") declare var token: string | null
@external("index", "input.above") declare var above: string | null
@external("index", "input.amount") declare var amount: string | null
@external("index", "input.recipient") declare var recipient: string | null
@external("index", "input.fee") declare var fee: string | null

// The selector of balanceOf(address) (EIP-20).
const BALANCE_OF = "0x70a08231"

export function main(): void {
  const answer = call(chainId, token!, BALANCE_OF + encoded("address", user()))
  const balance = decoded("uint256", answer)
  info(`balance ${balance}`)
  if (isLess(above!, balance)) transfer(chainId, token!, amount!, recipient!, fee!)
}
