// Does with ethers what a wallet, or whoever checks a wallet's signature, does.
// Standard input: a JSON array of tasks; standard output: the array of their results.
import { Wallet, getBytes, verifyMessage, verifyTypedData } from 'ethers'

const tasks = {
  signTypedData: ({ key, domain, types, message }) => new Wallet(key).signTypedData(domain, types, message),
  signText: ({ key, text }) => new Wallet(key).signMessage(text),
  signBytes: ({ key, hex }) => new Wallet(key).signMessage(getBytes(hex)),
  signerOfTypedData: ({ domain, types, message, signature }) => verifyTypedData(domain, types, message, signature),
  signerOfText: ({ text, signature }) => verifyMessage(text, signature),
}

let input = ''
for await (const chunk of process.stdin) input += chunk
const results = []
for (const { task, ...values } of JSON.parse(input)) results.push(await tasks[task](values))
process.stdout.write(JSON.stringify(results))
