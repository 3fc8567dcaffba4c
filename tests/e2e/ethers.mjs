// Does with ethers what a wallet, or whoever checks a wallet's signature, does.
// Each line of standard input is a JSON array of tasks; a line of standard output, the array of their results.
import { createInterface } from 'node:readline'
import { Wallet, getBytes, verifyMessage, verifyTypedData } from 'ethers'

const tasks = {
  signTypedData: ({ key, domain, types, message }) => new Wallet(key).signTypedData(domain, types, message),
  signText: ({ key, text }) => new Wallet(key).signMessage(text),
  signBytes: ({ key, hex }) => new Wallet(key).signMessage(getBytes(hex)),
  signerOfTypedData: ({ domain, types, message, signature }) => verifyTypedData(domain, types, message, signature),
  signerOfText: ({ text, signature }) => verifyMessage(text, signature),
}

for await (const line of createInterface({ input: process.stdin })) {
  const results = []
  for (const { task, ...values } of JSON.parse(line)) results.push(await tasks[task](values))
  process.stdout.write(`${JSON.stringify(results)}\n`)
}
