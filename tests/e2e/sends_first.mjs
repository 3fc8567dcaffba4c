// Sends all of a large body before it looks at the answer, as `fetch` and axios do: node sends_first.mjs URL BYTES TIMES
import axios from "axios";

const [url, bytes, times] = process.argv.slice(2);
const body = Buffer.alloc(Number(bytes), "a");
const headers = { "content-type": "application/json" };
const statuses = { fetch: [], axios: [] };
for (let time = 0; time < Number(times); time++) {
  const answer = await fetch(url, { method: "POST", body, headers });
  await answer.text();
  statuses.fetch.push(answer.status);
  const reply = await axios.post(url, body, {
    headers,
    maxBodyLength: Infinity,
    validateStatus: () => true,
  });
  statuses.axios.push(reply.status);
}
console.log(JSON.stringify(statuses));
