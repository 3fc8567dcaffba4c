// Writes a million lines of log.

import { info } from "./host"

export function main(): void {
  for (let line = 0; line < 1_000_000; line++) info("again")
}
