// What a host gives to a function: imports by name, texts that are JSON, and a little reading and writing of JSON.
// `GENERATION` comes from the compiler's command line: 1 for generation B, 2 for C. What the other one imports is left
// out.

@external("log", "_log")
declare function hostLog(level: i32, text: string): void

@external("environment", "_getContext")
declare function hostContext(): string

@external("environment", "_evmCallQuery")
declare function hostEvmCall(query: string): string

@external("environment", "_tokenPriceQuery")
declare function hostTokenPrice(query: string): string

@external("environment", "_transfer")
export declare function hostTransfer(intent: string): void

@external("environment", "_swap")
declare function hostSwap(intent: string): void

@external("environment", "_evmCall")
declare function hostCall(intent: string): void

@external("environment", "_sendIntent")
declare function hostIntent(intent: string): void

@external("evm", "_encode")
declare function hostEncode(values: string): string

@external("evm", "_decode")
declare function hostDecode(value: string): string

@external("evm", "_keccak")
declare function hostKeccak(text: string): string

const INFO = 3

// The operations of intents; a call is 2 in both generations.
const SWAP = 0
const TRANSFER = 1
const CALL = 2
const LIFETIME_S = 300

let intentsSent = 0

export function info(text: string): void {
  hostLog(INFO, text)
}

// JSON. The texts of a host have no escapes in them, and the names that are asked for are unique in theirs.

// The value of a member, without the quotes of a text: `{"a":"b"}` has "b", `{"a":[1,2]}` has "[1,2]".
export function member(json: string, name: string): string {
  const key = `"${name}":`
  const at = json.indexOf(key)
  if (at < 0) throw new Error(`no member ${name}`)
  return valueAt(json, at + key.length)
}

// The values of a list, each without the quotes of a text.
export function items(json: string): string[] {
  const found: string[] = []
  let at = 1
  while (at < json.length - 1) {
    const value = valueAt(json, at)
    found.push(value)
    at += value.length + (json.charAt(at) == '"' ? 3 : 1)
  }
  return found
}

function valueAt(json: string, start: i32): string {
  if (json.charAt(start) == '"') return json.substring(start + 1, json.indexOf('"', start + 1))
  let depth = 0
  let end = start
  for (; end < json.length; end++) {
    const letter = json.charAt(end)
    if (letter == "[" || letter == "{") depth++
    else if (letter == "]" || letter == "}") {
      if (depth == 0) break
      depth--
    } else if (letter == "," && depth == 0) break
  }
  return json.substring(start, end)
}


// The context of the run.

export function user(): string {
  return member(hostContext(), "user")
}

export function timestamp(): string {
  return member(hostContext(), "timestamp")
}

export function payload(): string {
  return member(member(hostContext(), "triggerPayload"), "data")
}

function settlerOf(chainId: i32): string {
  const settlers = items(member(hostContext(), "settlers"))
  for (let i = 0; i < settlers.length; i++) {
    if (member(settlers[i], "chainId") == chainId.toString()) return member(settlers[i], "address")
  }
  throw new Error(`no settler on chain ${chainId}`)
}

// Questions. A failure ends the run.

function dataOf(answer: string): string {
  if (member(answer, "success") != "true") throw new Error(member(answer, "error"))
  return member(answer, "data")
}

export function call(chainId: i32, to: string, data: string): string {
  return dataOf(hostEvmCall(`{"to":"${to}","chainId":${chainId},"data":"${data}"}`))
}

// The prices of a token in USD times 10^18, one from each source.
export function prices(chainId: i32, token: string): string[] {
  return items(dataOf(hostTokenPrice(`{"address":"${token}","chainId":${chainId}}`)))
}

export function encoded(abiType: string, value: string): string {
  return hostEncode(`[{"abiType":"${abiType}","value":"${value}"}]`)
}

export function decoded(abiType: string, data: string): string {
  return hostDecode(`{"abiType":"${abiType}","value":"${data}"}`)
}

// Numbers as decimal texts.

export function isLess(one: string, other: string): bool {
  return one.length == other.length ? one < other : one.length < other.length
}

// The middle one; of an even number of values, the lower one of the two in the middle.
export function median(values: string[]): string {
  if (!values.length) throw new Error("no price")
  values.sort((one, other) => (isLess(one, other) ? -1 : isLess(other, one) ? 1 : 0))
  return values[(values.length - 1) / 2]
}

// Intents.

export function send(intent: string): void {
  if (GENERATION == 1) hostTransfer(intent)
  else hostIntent(intent)
}

export function transfer(chainId: i32, token: string, amount: string, recipient: string, fee: string): void {
  const transfers = `"transfers":[{"token":"${token}","amount":"${amount}","recipient":"${recipient}"}]`
  if (GENERATION == 1) hostTransfer(intent(chainId, TRANSFER, token, fee, transfers, "[]"))
  else hostIntent(operation(chainId, TRANSFER, token, fee, transfers, "[]"))
}

export function swap(
  chainId: i32,
  tokenIn: string,
  amountIn: string,
  tokenOut: string,
  minAmountOut: string,
  fee: string,
): void {
  const given = `"tokensIn":[{"token":"${tokenIn}","amount":"${amountIn}"}]`
  const wanted = `"tokensOut":[{"token":"${tokenOut}","minAmount":"${minAmountOut}","recipient":"${user()}"}]`
  const both = `"sourceChain":${chainId},${given},${wanted},"destinationChain":${chainId}`
  if (GENERATION == 1) hostSwap(intent(chainId, SWAP, tokenOut, fee, both, "[]", false))
  else hostIntent(operation(chainId, SWAP, tokenOut, fee, both, "[]"))
}

export function invoke(
  chainId: i32,
  target: string,
  data: string,
  value: string,
  feeToken: string,
  fee: string,
  events: string = "[]",
): void {
  const calls = `"calls":[{"target":"${target}","data":"${data}","value":"${value}"}]`
  if (GENERATION == 1) hostCall(intent(chainId, CALL, feeToken, fee, calls, events))
  else hostIntent(operation(chainId, CALL, feeToken, fee, calls, events))
}

// The members that both generations have.
function shared(chainId: i32, feeToken: string, fee: string): string {
  const context = hostContext()
  const ofRun = member(context, "triggerSig") + timestamp() + payload()
  const nonce = hostKeccak(ofRun + (++intentsSent).toString())
  const deadline = u64.parse(timestamp()) / 1000 + LIFETIME_S
  const fees = `"maxFees":[{"token":"${feeToken}","amount":"${fee}"}]`
  return `"settler":"${settlerOf(chainId)}","deadline":"${deadline}","nonce":"${nonce}",${fees}`
}

// An intent of generation B is one operation.
function intent(
  chainId: i32,
  op: i32,
  feeToken: string,
  fee: string,
  body: string,
  events: string,
  named: bool = true,
): string {
  const chain = named ? `"chainId":${chainId},` : ""
  const head = `"op":${op},${shared(chainId, feeToken, fee)},"user":"${user()}","events":${events}`
  return `{${head},${chain}${body}}`
}

// An intent of generation C with its one operation.
function operation(chainId: i32, opType: i32, feeToken: string, fee: string, body: string, events: string): string {
  const one = `{"opType":${opType},"chainId":${chainId},"user":"${user()}","events":${events},${body}}`
  return `{${shared(chainId, feeToken, fee)},"feePayer":"${user()}","operations":[${one}]}`
}
