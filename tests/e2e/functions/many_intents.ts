// Sends more intents than a run may have.

import { send } from "./host"

export function main(): void {
  for (let sent = 0; sent < 33; sent++) send("{}")
}
