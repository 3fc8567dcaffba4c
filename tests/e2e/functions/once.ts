// Transfers as many base units as its moment has milliseconds, so that the intent shows the payload.

import { decoded, info, payload, timestamp, transfer } from "./host"

@external("index", "input.chainId") declare const chainId: u32
@external("index", "input.token") declare var token: string | null
@external("index", "input.recipient") declare var recipient: string | null
@external("index", "input.fee") declare var fee: string | null

export function main(): void {
  const moment = decoded("uint256", payload())
  info(`moment ${moment}, timestamp ${timestamp()}`)
  transfer(chainId, token!, moment, recipient!, fee!)
}
