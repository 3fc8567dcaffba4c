// Repeats the event that caused the run: a call of the same contract with the event's data, and an event of the intent
// with its first topic.

import { decoded, info, invoke, items, payload } from "./host"

@external("index", "input.feeToken") declare var feeToken: string | null
@external("index", "input.fee") declare var fee: string | null

// chainId, blockHash, index, contract, topics, data
const EVENT = "(uint256,bytes32,uint256,address,bytes32[],bytes)"

export function main(): void {
  const answer = decoded(EVENT, payload())
  // The list in the list is a text in a text: `["1",…,"[\"0x…\"]","0x…"]`.
  const parts = items(answer.replaceAll('"[', "[").replaceAll(']"', "]").replaceAll("\\", ""))
  const topics = items(parts[4])
  const data = parts[5]
  info(`event ${parts[2]} of ${parts[3]} in block ${parts[1]} with ${topics.length} topics`)
  const events = topics.length ? `[{"topic":"${topics[0]}","data":"${data}"}]` : "[]"
  invoke(I32.parseInt(parts[0]), parts[3], data, "0", feeToken!, fee!, events)
}
