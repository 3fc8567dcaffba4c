// Never ends.

export function main(): void {
  while (true) {}
}
