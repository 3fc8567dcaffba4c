// A registry of triggers on today's usual stack, to compare speeds with: fastify, ethers, better-sqlite3 or pg.
//
//   node peer.mjs FILE-OR-POSTGRESQL-URL [ethers|secp256k1]
//
// Three endpoints, which answer as Muniment's do: GET /triggers/{sig}, GET /triggers?signer=…&limit=…, POST /triggers.
// Each row holds its record as it is answered. Triggers that arrive together are stored in one transaction.
import Fastify from "fastify";
import { Refused, addressOf, canonical, checkShape, verifier } from "./consent.mjs";

const [where, curve = "ethers"] = process.argv.slice(2);
const SIG = { type: "string", pattern: "^0x[0-9a-fA-F]{130}$" };
const ADDRESS = { type: "string", pattern: "^0x[0-9a-fA-F]{40}$" };
const exactly = (properties) => ({
  type: "object", properties, required: Object.keys(properties), additionalProperties: false,
});
const VALUES = exactly({
  functionCid: { type: "string", pattern: "^Qm[1-9A-HJ-NP-Za-km-z]{44}$" },
  version: { type: "string", pattern: "^[0-9]+\\.[0-9]+\\.[0-9]+$" },
  input: { type: "object" },
  config: { type: "object" },
  executionFeeLimit: { type: "string" },
  minValidations: { type: "integer", minimum: 1, maximum: 255 },
});
const BODY = exactly({
  description: { type: "string", minLength: 1, maxLength: 1000, pattern: "^[^\\u0000]*$" },
  typedData: exactly({ types: { type: "object" }, values: VALUES }),
  sig: SIG,
  signer: ADDRESS,
});
const QUERY = {
  type: "object",
  properties: {
    signer: ADDRESS,
    limit: { type: "integer", minimum: 1, maximum: 100, default: 10 },
    cursor: { type: "string", pattern: "^[A-Za-z0-9_-]{2,32}$" },
    sort: { type: "integer", enum: [-1, 1], default: -1 },
  },
  required: ["signer"],
};

const database = where.startsWith("postgresql://")
  ? await (await import("./postgres.mjs")).openPostgres(where)
  : (await import("./sqlite.mjs")).openSqlite(where);
const verify = verifier(curve);
const app = Fastify({
  keepAliveTimeout: 75_000,
  routerOptions: { maxParamLength: 132 }, // a signature
  ajv: { customOptions: { removeAdditional: false } },
});
const hex = (text) => Buffer.from(text, "hex");
const send = (reply, json) => reply.header("content-type", "application/json").send(json);

app.setErrorHandler((error, _, reply) => {
  const status = error.statusCode ?? 500;
  if (status >= 500) console.error(error);
  reply.code(status).send({ status, code: error.code, detail: error.message });
});

app.get("/triggers/:sig", { schema: { params: exactly({ sig: SIG }) } }, async (request, reply) => {
  const sig = canonical(request.params.sig);
  const found = await database.one(hex(sig));
  if (!found) throw new Refused("trigger-not-found", 404);
  const etag = `"${sig.slice(0, 32)}-${found[1] ? "deactivated" : "active"}"`;
  reply.header("etag", etag);
  if (request.headers["if-none-match"] === etag) return reply.code(304).send();
  return send(reply, found[0]);
});

app.get("/triggers", { schema: { querystring: QUERY } }, async (request, reply) => {
  const { signer, limit, cursor, sort } = request.query;
  const isRising = sort === 1;
  const from = cursor ? seqOf(cursor) : isRising ? 0 : Number.MAX_SAFE_INTEGER;
  const rows = await database.page(hex(addressOf(signer).slice(2)), from, limit + 1, isRising);
  let json = "[";
  const shown = Math.min(rows.length, limit);
  for (let at = 0; at < shown; at++) json += at ? `,${rows[at][1]}` : rows[at][1];
  const links = [];
  const link = (order, seq, rel) => {
    const after = Buffer.from(`t-${seq}`).toString("base64url");
    links.push(`</triggers?signer=${signer}&limit=${limit}${order}&cursor=${after}>; rel="${rel}"`);
  };
  if (isRising) link("&sort=1", shown ? rows[shown - 1][0] : from, "next");
  else if (rows.length > limit) link("", rows[limit - 1][0], "next");
  if (!isRising && !cursor) link("&sort=1", shown ? rows[0][0] : 0, "prev");
  if (links.length) reply.header("link", links.join(", "));
  return send(reply, `${json}]`);
});

function seqOf(cursor) {
  const seq = Number(Buffer.from(cursor, "base64url").toString().slice(2));
  if (!Number.isSafeInteger(seq)) throw new Refused("invalid-parameter");
  return seq;
}

app.post("/triggers", { schema: { body: BODY } }, async ({ body }, reply) => {
  const { typedData, description } = body;
  const { types, values } = typedData;
  const sig = canonical(body.sig);
  const signer = addressOf(body.signer);
  const encoder = checkShape(typedData, await inputsOf(values.functionCid));
  const digest = hashed(() => verify(values, encoder, sig, signer));
  const owner = hex(signer.slice(2));
  const known = await database.known(owner, digest);
  if (known) return answer(reply, known);
  const createdAtMs = Date.now();
  const record = JSON.stringify({
    sig: `0x${sig}`, functionCid: values.functionCid, signer: body.signer, version: values.version, description,
    createdAt: new Date(createdAtMs).toISOString(), input: values.input, config: values.config,
    executionFeeLimit: values.executionFeeLimit, minValidations: values.minValidations, types,
    endDate: Number(values.config.endDate),
  });
  return answer(reply, await stored({ sig: hex(sig), signer: owner, digest, createdAtMs, record }));
});

function hashed(verifying) {
  try {
    return verifying();
  } catch (error) {
    if (error instanceof Refused) throw error;
    throw new Refused("invalid-typed-data"); // of ethers: a value is not of its type
  }
}

function answer(reply, row) {
  if (!row) throw new Refused("signature-taken", 409);
  if (row[1]) throw new Refused("trigger-deactivated", 409);
  return send(reply, row[0]);
}

// What a function takes never changes, so it is kept.
const inputsKept = new Map();

async function inputsOf(cid) {
  let inputs = inputsKept.get(cid);
  if (!inputs) {
    const text = await database.inputs(cid);
    if (!text) throw new Refused("unknown-function");
    inputs = JSON.parse(text);
    inputsKept.set(cid, inputs);
  }
  return inputs;
}

// Everything that arrived in one turn of the event loop is one transaction.
let waiting = [];

function stored(row) {
  return new Promise((resolve, reject) => {
    if (!waiting.length) setImmediate(storeWaiting);
    waiting.push({ row, resolve, reject });
  });
}

async function storeWaiting() {
  const group = waiting;
  waiting = [];
  try {
    const rows = await database.store(group.map(({ row }) => row));
    group.forEach(({ resolve }, at) => resolve(rows[at]));
  } catch (error) {
    group.forEach(({ reject }) => reject(error));
  }
}

process.on("SIGTERM", async () => {
  app.server.closeAllConnections();
  await app.close();
  await database.close();
});
const url = await app.listen({ host: "127.0.0.1", port: 0 });
console.log(`listens on ${url}`);
