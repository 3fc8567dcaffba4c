// Reads bundles from gateways that it does not trust, and checks every block against its CID: block by block with
// Helia's gateway client, or from one CAR file with @ipld/car.
// Standard input: a JSON array of [URL of the gateway, CID of the bundle, `blocks` or `car`]; standard output: the array
// of the answers, each {is: the sha2-256 of each file} or {error: message}.
import { createHash } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { trustlessGatewayBlockBroker } from '@helia/trustless-gateway-client'
import { CarReader } from '@ipld/car'
import { uriToMultiaddr } from '@multiformats/uri-to-multiaddr'
import { prefixLogger } from 'birnam'
import { exporter } from 'ipfs-unixfs-exporter'
import { equals } from 'multiformats/bytes'
import { CID } from 'multiformats/cid'
import { sha256 } from 'multiformats/hashes/sha2'

async function check (cid, bytes) {
  if (cid.multihash.code !== sha256.code) throw new Error(`unexpected hash function of ${cid}`)
  const { digest } = await sha256.digest(bytes)
  if (!equals(digest, cid.multihash.digest)) throw new Error(`hash mismatch of ${cid}`)
  return bytes
}

function blocks (url) {
  const routing = { async * findProviders () { yield { multiaddrs: [uriToMultiaddr(url)], router: 'test' } } }
  const broker = trustlessGatewayBlockBroker({ allowInsecure: true, allowLocal: true })({
    routing, logger: prefixLogger('test')
  })
  return { async * get (cid) { yield check(cid, await broker.retrieve(cid)) } }
}

async function car (url, root) {
  const response = await fetch(`${url}/ipfs/${root}?format=car`)
  if (!response.ok) throw new Error(`status ${response.status}`)
  const reader = await CarReader.fromBytes(new Uint8Array(await response.arrayBuffer()))
  const roots = await reader.getRoots()
  if (roots.length !== 1 || !roots[0].equals(root)) throw new Error(`other roots: ${roots}`)
  return {
    async * get (cid) {
      const block = await reader.get(cid)
      if (block === undefined) throw new Error(`missing block ${cid}`)
      yield await check(cid, block.bytes)
    }
  }
}

async function hashes ([url, text, form]) {
  const root = CID.parse(text)
  const store = form === 'car' ? await car(url, root) : blocks(url)
  const files = {}
  const directory = await exporter(root, store)
  for await (const { cid, name } of directory.entries()) {
    const file = await exporter(cid, store)
    const hash = createHash('sha256')
    for await (const chunk of file.content()) hash.update(chunk)
    files[name] = hash.digest('hex')
  }
  return files
}

const answers = []
for (const each of JSON.parse(readFileSync(0, 'utf-8'))) {
  answers.push(await hashes(each).then((files) => ({ is: files }), (error) => ({ error: error.message })))
}
process.stdout.write(JSON.stringify(answers))
