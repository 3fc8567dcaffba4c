// Asks for memory until it has 4 GiB, or until it gets none: then it ends the run.

export function main(): void {
  while (memory.size() < 65_536) {
    if (memory.grow(1) < 0) throw new Error(`no more than ${memory.size()} pages`)
  }
}
