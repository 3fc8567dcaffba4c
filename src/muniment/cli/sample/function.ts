// Sends a transfer at every run: `amount` base units of `token` to `recipient`, for a fee of at most `fee` base units.

@external("index", "input.chainId") declare const chainId: u32
@external("index", "input.token") declare var token: string | null
@external("index", "input.amount") declare var amount: string | null
@external("index", "input.recipient") declare var recipient: string | null
@external("index", "input.fee") declare var fee: string | null

@external("environment", "_getContext") declare function contextOfRun(): string
@external("environment", "_transfer") declare function send(intent: string): void
@external("evm", "_keccak") declare function keccak(text: string): string
@external("log", "_log") declare function log(level: i32, text: string): void

const INFO = 3
const TRANSFER = 1
const LIFETIME_S = 300

export function main(): void {
  const context = contextOfRun()
  const user = member(context, "user")
  const time = member(context, "timestamp") // milliseconds
  const deadline = u64.parse(time) / 1000 + LIFETIME_S
  // The same run has the same nonce, so that it is paid once. The last part counts the intents of the run.
  const nonce = keccak(member(context, "triggerSig") + time + member(context, "data") + "1")
  const transfer = `{"token":"${token!}","amount":"${amount!}","recipient":"${recipient!}"}`
  const maxFee = `{"token":"${token!}","amount":"${fee!}"}`
  send(
    `{"op":${TRANSFER},"settler":"${settler(context)}","user":"${user}","deadline":"${deadline}","nonce":"${nonce}",` +
      `"maxFees":[${maxFee}],"events":[],"chainId":${chainId},"transfers":[${transfer}]}`,
  )
  log(INFO, `${amount!} of ${token!} to ${recipient!}`)
}

// The settlement contract of the chain: `"settlers":[{"address":"0x…","chainId":8453}]`.
function settler(context: string): string {
  const objects = context.split("{")
  for (let i = 0; i < objects.length; i++) {
    if (member(objects[i], "chainId") == chainId.toString()) return member(objects[i], "address")
  }
  throw new Error(`no settlement contract on chain ${chainId}`)
}

// The first member of this name in a JSON text: the content of a string, or a number.
function member(json: string, name: string): string {
  const at = json.indexOf(`"${name}":`)
  if (at < 0) return ""
  const value = json.substring(at + name.length + 3)
  return value.startsWith('"') ? value.substring(1, value.indexOf('"', 1)) : value.split(",")[0].split("}")[0]
}
