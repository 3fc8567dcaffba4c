// Compiles functions in one process: the compiler is slow to start. Arguments: a folder for the results, then for each
// function the path of its source, without `.ts`; `:1` (B) or `:2` (C) after it gives the generation to the source.
// Writes NAME.wasm, or NAME.GENERATION.wasm.
import { basename, dirname, join } from "node:path"

import asc from "assemblyscript/asc"

const [folder, ...wanted] = process.argv.slice(2)
for (const each of wanted) {
  const [path, generation] = each.split(":")
  const name = basename(path)
  const out = join(folder, generation ? `${name}.${generation}.wasm` : `${name}.wasm`)
  const constants = generation ? ["--use", `GENERATION=${generation}`] : []
  const options = ["-O", "--exportRuntime", "--baseDir", dirname(path), ...constants, "--outFile", out]
  const { error, stderr } = await asc.main([`${name}.ts`, ...options])
  if (error) {
    process.stderr.write(`${path}.ts does not compile: ${error.message}\n${stderr}`)
    process.exit(1)
  }
}
