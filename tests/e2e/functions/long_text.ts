// Gives the host a text of ten mebibytes: as a line of log, and as an intent.

import { hostTransfer, info } from "./host"

export function main(): void {
  const long = "x".repeat(5 * 1024 * 1024)
  info(long)
  hostTransfer(long)
}
