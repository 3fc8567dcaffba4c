// Makes the types of the service at the URL given, as openapi-typescript makes them, and compiles the programs beside
// this file with them. Its one setting is the one that its documentation gives for uploads: what is binary is a Blob.
// Arguments: the URL, then the tsconfig.json of other programs, which TypeScript also compiles in this process: it is
// slow to start. Standard output: for each program, a JSON array of what TypeScript says is wrong with it.
import { writeFileSync } from 'node:fs'
import { resolve } from 'node:path'
import openapiTS, { astToString } from 'openapi-typescript'
import ts from 'typescript'

function problemsOf (file) {
  const config = ts.getParsedCommandLineOfConfigFile(resolve(file), {}, {
    ...ts.sys, onUnRecoverableConfigFileDiagnostic (problem) { throw new Error(textOf(problem)) }
  })
  const program = ts.createProgram({ rootNames: config.fileNames, options: config.options })
  const problems = [...config.errors, ...ts.getPreEmitDiagnostics(program), ...program.emit().diagnostics]
  return problems.map(textOf)
}

const textOf = (problem) => ts.formatDiagnostic(problem, {
  getCanonicalFileName: (name) => name, getCurrentDirectory: ts.sys.getCurrentDirectory, getNewLine: () => '\n'
})

const [url, ...others] = process.argv.slice(2)
const blob = ts.factory.createTypeReferenceNode(ts.factory.createIdentifier('Blob'))
const nodes = await openapiTS(new URL('/openapi.json', url), {
  transform: (schema) => (schema.format === 'binary' ? blob : undefined),
})
writeFileSync('schema.d.ts', astToString(nodes))
console.log(JSON.stringify(['tsconfig.json', ...others].map(problemsOf)))
