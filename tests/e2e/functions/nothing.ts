// Looks at its context and sends nothing.

import { info, timestamp } from "./host"

export function main(): void {
  info(`nothing to do at ${timestamp()}`)
}
