// A receiver of webhooks that verifies with npm's standardwebhooks. It agrees to a challenge, then reads its secret from
// standard input, and prints a line for each request: the id of the event, or that it was refused.
import { createServer } from 'node:http'
import { createInterface } from 'node:readline'
import { Webhook } from 'standardwebhooks'

let webhook
createInterface({ input: process.stdin }).on('line', (secret) => {
  webhook = new Webhook(secret)
  console.log('ready')
})

const server = createServer(async (request, response) => {
  const pieces = []
  for await (const piece of request) pieces.push(piece)
  const body = Buffer.concat(pieces).toString('utf-8')
  const event = JSON.parse(body)
  if (event.type === 'muniment.webhook.challenge') {
    response.end(event.data.challenge)
    return
  }
  try {
    webhook.verify(body, request.headers)
    console.log(event.id === request.headers['webhook-id'] ? event.id : 'another id')
    response.writeHead(204).end()
  } catch (error) {
    console.log(`refused: ${error.message}`)
    response.writeHead(401).end()
  }
})
server.listen(0, '127.0.0.1', () => console.log(server.address().port))
