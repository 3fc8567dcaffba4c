// Intents of both forms with a client that was generated: record one of each, read them, tell them apart by their type.
// It has to compile as it stands: no cast, no `any`.
import createClient from 'openapi-fetch'
import type { components, paths } from './schema.js'

declare const process: { argv: string[] }
const [, , url = '', key = ''] = process.argv
const client = createClient<paths>({ baseUrl: url, headers: { 'x-operator-key': key } })

type Schemas = components['schemas']
type NewIntent = Schemas['NewIntent'] | Schemas['NewOperationsIntent']

function check(what: string, isTrue: boolean): void {
  if (!isTrue) throw new Error(`this does not hold: ${what}`)
}

const user = '0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed'
const shared = {
  settler: '0x8be430d29a2c5692f9345a28506b849C6a99eDaA',
  nonce: `0x${'01'.repeat(32)}`,
  deadline: '4102444800',
  maxFees: [],
  minValidations: 1,
}
const triggerSig = `0x${'11'.repeat(65)}`
const first: Schemas['NewIntent'] = { ...shared, op: 1, user, data: '0x', events: [], configSig: triggerSig }
const second: Schemas['NewOperationsIntent'] = {
  ...shared,
  feePayer: user,
  triggerSig,
  operations: [{ opType: 4, user, data: '0x', events: [] }],
}
// @ts-expect-error: an intent of generation 2 has operations
const incomplete: Schemas['NewOperationsIntent'] = { ...shared, feePayer: user, triggerSig }
check('what is due is typed', !('operations' in incomplete))

// The refusal of a wrong hash shows the right one.
async function hashOf(body: NewIntent): Promise<string> {
  const { error } = await client.PUT('/intents/{hash}', { params: { path: { hash: `0x${'00'.repeat(32)}` } }, body })
  const computed = error?.computed
  if (typeof computed !== 'string') throw new Error(`no hash: ${JSON.stringify(error)}`)
  return computed
}

for (const body of [first, second]) {
  const path = { hash: await hashOf(body) }
  const put = await client.PUT('/intents/{hash}', { params: { path }, body })
  check('it is recorded', put.response.status === 200)
  const offer = { solver: user, deadline: '4102444800', fees: [] }
  const proposal = 'operations' in body ? { ...offer, datas: ['0x'] } : { ...offer, data: '0x' }
  const appended = await client.POST('/intents/{hash}/proposals', { params: { path }, body: proposal })
  check('it has a proposal', appended.data !== undefined && 'datas' in appended.data === 'operations' in body)
}

const usual = await client.GET('/intents', {})
check('listings show generation 1', usual.data?.map((each) => each.generation).join() === '1')
const all = await client.GET('/intents', { params: { query: { generation: 'all', sort: 1 } } })
const seen = (all.data ?? []).map((each) =>
  each.generation === 2
    ? each.operations.map((one) => one.opType).join() + each.proposals.map((one) => one.datas.join()).join()
    : `${each.op}${each.proposals.map((one) => one.data).join()}`,
)
check('each has the type of its generation', seen.join(' ') === '10x 40x')
console.log(JSON.stringify(seen))
