// Sends more intents than a run may have.

import { transfer } from "./host"

@external("index", "input.chainId") declare const chainId: u32
@external("index", "input.token") declare var token: string | null
@external("index", "input.amount") declare var amount: string | null
@external("index", "input.recipient") declare var recipient: string | null
@external("index", "input.fee") declare var fee: string | null

export function main(): void {
  for (let sent = 0; sent < 33; sent++) transfer(chainId, token!, amount!, recipient!, fee!)
}
