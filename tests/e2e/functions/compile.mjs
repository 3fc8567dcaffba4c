// Compiles functions in one process: the compiler is slow to start. Arguments: a folder for the results, then
// NAME:GENERATION of each, with generation 1 (B) or 2 (C). Writes NAME.GENERATION.wasm.
import { join } from "node:path"

import asc from "assemblyscript/asc"

const [folder, ...wanted] = process.argv.slice(2)
for (const each of wanted) {
  const [name, generation] = each.split(":")
  const out = join(folder, `${name}.${generation}.wasm`)
  const options = ["-O", "--exportRuntime", "--use", `GENERATION=${generation}`, "--outFile", out]
  const { error, stderr } = await asc.main([`${name}.ts`, ...options])
  if (error) {
    process.stderr.write(`${name}.ts does not compile: ${error.message}\n${stderr}`)
    process.exit(1)
  }
}
