// Sends a transfer while the median price of the token is below a bound (in USD times 10^18).

import { info, isLess, median, prices, transfer } from "./host"

@external("index", "input.chainId") declare const chainId: u32
@external("index", "input.token") declare var token: string | null
@external("index", "input.below") declare var below: string | null
@external("index", "input.amount") declare var amount: string | null
@external("index", "input.recipient") declare var recipient: string | null
@external("index", "input.fee") declare var fee: string | null

export function main(): void {
  const price = median(prices(chainId, token!))
  info(`price ${price}`)
  if (isLess(price, below!)) transfer(chainId, token!, amount!, recipient!, fee!)
}
