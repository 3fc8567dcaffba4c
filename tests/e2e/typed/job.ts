// The main job with a client that was generated: log in, deploy, sign a trigger, list it, deactivate it, list again.
// It has to compile as it stands: no cast, no `any`.
import { TypedDataEncoder, Wallet } from 'ethers'
import createClient from 'openapi-fetch'
import type { components, paths } from './schema.js'

declare const process: { argv: string[] }
const [, , url = '', manifest = '', wasmInBase64 = ''] = process.argv
const client = createClient<paths>({ baseUrl: url })
const wallet = Wallet.createRandom()
const { address } = wallet

type Answer<T> = { data?: T; error?: components['schemas']['Problem']; response: Response }

function good<T>({ data, error, response }: Answer<T>): NonNullable<T> {
  if (error !== undefined) throw new Error(`${response.status} ${error.code}: ${error.detail}`)
  if (data === undefined || data === null) throw new Error(`${response.status} without a body`)
  return data
}

function check(what: string, isTrue: boolean): void {
  if (!isTrue) throw new Error(`this does not hold: ${what}`)
}

const { nonce } = good(await client.POST('/users/nonce', { body: { address } }))
const signature = await wallet.signMessage(nonce)
const { token } = good(await client.POST('/users/authenticate', { body: { address, signature } }))
const { apiKey } = good(await client.GET('/users/api-key', { headers: { 'x-auth-token': token } }))

const file = [
  new File([manifest], 'manifest.json'),
  new File([Uint8Array.from(atob(wasmInBase64), (each) => each.charCodeAt(0))], 'function.wasm'),
]
const deployed = good(
  await client.POST('/functions', {
    headers: { 'x-api-key': apiKey },
    body: { file },
    bodySerializer(body) {
      const form = new FormData()
      for (const each of body.file) form.append('file', each)
      return form
    },
  }),
)
const cid = deployed.CID
const shown = good(await client.GET('/functions/{cid}/manifest', { params: { path: { cid } } }))
check('the manifest is a typed answer', shown.name === deployed.name && 'chainId' in shown.inputs)

// Neither `minValidations` nor `executionFeeLimit` has to be given, and an input has members of any name.
const input = {
  chainId: 8453,
  token: '0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913',
  amount: '1000000',
  recipient: '0x1111111111111111111111111111111111111111',
  fee: '10000',
}
const config = { type: 0, schedule: '0 */6 * * *', delta: '10m', endDate: 0 } as const
const params = good(
  await client.POST('/triggers/sign-params', { body: { functionCid: cid, version: '1.0.0', input, config } }),
)
// @ts-expect-error: what is due cannot be left out, or the types would say nothing
const incomplete: components['schemas']['TriggerParams'] = { functionCid: cid, version: '1.0.0', input }
check('the defaults are those of the interface', params.message.minValidations === 1 && !('config' in incomplete))

const { sig } = good(
  await client.POST('/triggers', {
    body: {
      description: 'By a generated client',
      typedData: { types: params.types, values: params.message },
      sig: await wallet.signTypedData(params.domain, params.types, params.message),
      signer: address,
    },
  }),
)
const digest = TypedDataEncoder.hash(params.domain, params.types, params.message)
check('the digest is that of ethers', digest.startsWith('0x'))

const other = `0x${'1'.repeat(128)}1b`
const sigs = [sig, other]
const listed = await client.GET('/triggers', { params: { query: { sigs, sort: 1 } } })
check('a list goes as the parameter again', listed.response.url.includes(`sigs=${sig}&sigs=${other}`))
check('the trigger is listed', good(listed).map((each) => each.sig).join() === sig)
check('a listing leads on', listed.response.headers.get('link')?.includes('rel="next"') === true)
const functions = good(await client.GET('/functions', { params: { query: { cids: [cid, cid] } } }))
check('the function is listed', functions.map((each) => each.CID).join() === cid)

const consent = good(await client.POST('/triggers/deactivate/sign-params', { body: { triggerSigs: [sig] } }))
const { domain, types, message } = consent.typedData
const ended = await client.POST('/triggers/deactivate', {
  body: { triggerSigs: [sig], signature: await wallet.signTypedData(domain, types, message) },
})
check('it is deactivated', ended.response.status === 204)
const active = good(await client.GET('/triggers', { params: { query: { sigs: [sig], active: true } } }))
check('none is active', active.length === 0)

const refused = await client.GET('/triggers/{sig}', { params: { path: { sig: other } } })
check('a refusal is typed', refused.error?.code === 'trigger-not-found')
console.log(JSON.stringify({ cid, sig, signer: address }))
