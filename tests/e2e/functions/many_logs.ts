// Writes more lines of log than are kept.

import { info } from "./host"

export function main(): void {
  for (let line = 1; line <= 250; line++) info(`line ${line}`)
}
