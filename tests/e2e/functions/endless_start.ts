// Never ends, before `main` is called.

let turns = 0
while (true) turns++

export function main(): void {}
