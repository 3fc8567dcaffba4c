// Answers questions about the console's proofs: for each line with a JSON array of [function, ...arguments], a line with
// an array of answers, each {is: value} or {error: message}. Bytes are hex texts.
import { createInterface } from "node:readline";

const proofs = new URL("../../../src/muniment/service/console/assets/proofs/", import.meta.url);
const load = (name) => import(new URL(name, proofs).href);
const [bytes, typed, cid, content, car, log, signIn] = await Promise.all(
  ["bytes.js", "typed-data.js", "cid.js", "content.js", "car.js", "log.js", "sign-in.js"].map(load),
);
const { hex, unhex } = bytes;
const known = {
  base58: (text) => bytes.base58(unhex(text)),
  unbase58: (text) => hex(bytes.unbase58(text)),
  base32: (text) => bytes.base32(unhex(text)),
  unbase32: (text) => hex(bytes.unbase32(text)),
  varint: (number) => hex(bytes.varint(number)),
  readVarint: (text) => bytes.readVarint(unhex(text), 0),
  cid: (text) => cid.cidText(cid.parseCid(text)),
  digest: (data) => hex(typed.digest(data)),
  structHash: (primary, types, message) => hex(typed.structHash(primary, types, message)),
  domainSeparator: (domain) => hex(typed.domainSeparator(domain)),
  signer: (data, signature) => typed.signerOf(typed.digest(data), signature),
  signerOfHash: (hash, signature) => typed.signerOf(unhex(hash), signature),
  textSigner: (text, signature) => typed.signerOf(typed.textDigest(text), signature),
  address: (text) => typed.addressOf(text),
  signIn: (url, root, address, nonce, at) => signIn.signInText(url, root, address, nonce, new Date(at)),
  bundleCid: (manifest, wasm, profile) => content.bundleCid(unhex(manifest), unhex(wasm), profile),
  checkCar: async (text, file) => {
    const found = await car.checkCar(text, unhex(file));
    return { blocks: found.blocks, files: found.files.map((each) => [each.name, each.bytes.length]) };
  },
};
Object.assign(known, {
  logRoot: (entry, proof) => hex(log.rootOf(entry, log.readProof(proof))),
  logProof: (entry, proof) => {
    const { index, note } = log.checkProof(entry, proof);
    return [index, note.size, note.origin];
  },
  signedAt: (note, vkey) => log.signedAt(log.readNote(note), vkey),
  triggerEntry: (record, digest, domain) => log.triggerEntry(record, digest, domain),
  deactivationEntry: (record) => log.deactivationEntry(record),
  functionEntry: (record) => log.functionEntry(record),
  entryName: (entry) => log.nameOf(entry),
});
for await (const line of createInterface({ input: process.stdin })) {
  const answers = [];
  for (const [name, ...given] of JSON.parse(line)) {
    try {
      answers.push({ is: await known[name](...given) });
    } catch (error) {
      answers.push({ error: error.message, kind: error.constructor.name });
    }
  }
  process.stdout.write(`${JSON.stringify(answers)}\n`);
}
