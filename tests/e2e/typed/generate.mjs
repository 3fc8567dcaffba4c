// The types of the service at the URL given, as openapi-typescript makes them. Its one setting is the one that its
// documentation gives for uploads: what is binary is a Blob.
import { writeFileSync } from 'node:fs'
import openapiTS, { astToString } from 'openapi-typescript'
import ts from 'typescript'

const [url, target] = process.argv.slice(2)
const blob = ts.factory.createTypeReferenceNode(ts.factory.createIdentifier('Blob'))
const nodes = await openapiTS(new URL('/openapi.json', url), {
  transform: (schema) => (schema.format === 'binary' ? blob : undefined),
})
writeFileSync(target, astToString(nodes))
