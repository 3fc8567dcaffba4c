// Imports what no host has.

@external("environment", "_sendEther")
declare function sendEther(amount: i64): void

export function main(): void {
  sendEther(1)
}
