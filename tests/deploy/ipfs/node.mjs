// An IPFS node with the RPC that Kubo has too (js-ipfs), alone: it listens on loopback and connects to nobody.
// Arguments: the directory of its repository, and the port of the RPC. It prints `ready` when it answers.

// Its packages use what Node.js has since release 22.
Promise.withResolvers ??= () => {
  const made = {}
  made.promise = new Promise((resolve, reject) => Object.assign(made, { resolve, reject }))
  return made
}
const { create } = await import('ipfs-core')
const { HttpApi } = await import('ipfs-http-server')

const [repo, port] = process.argv.slice(2)
const ipfs = await create({
  repo,
  offline: true,
  silent: true,
  init: { emptyRepo: true, algorithm: 'Ed25519' },
  config: {
    Addresses: { Swarm: [], API: `/ip4/127.0.0.1/tcp/${port}`, Gateway: '', RPC: '' },
    Bootstrap: [],
    Discovery: { MDNS: { Enabled: false }, webRTCStar: { Enabled: false } }
  }
})
await new HttpApi(ipfs).start()
console.log('ready')
