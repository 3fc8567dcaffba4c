// Is a record in the transparency log? Entries, leaves and roots (RFC 9162, section 2.1), and signed notes (c2sp.org).

import { concat, equal, hex, utf8 } from "./bytes.js";
import { sha256 } from "./crypto.js";

/** @typedef {{name: string, id: string, bytes: Uint8Array}} Line of a signature */
/** @typedef {{text: string, origin: string, size: number, root: Uint8Array, lines: Line[]}} Note */
/** @typedef {{index: number, hashes: Uint8Array[], note: Note}} Proof */

const HEAD = "c2sp.org/tlog-proof@v1";
const HASHES_MAX = 63;

/** @param {string} text */
export function textHash(text) {
  return hex(sha256(utf8(text)));
}

/**
 * The entry of a trigger, from its record and the digest that was signed under the domain with this name.
 * @param {Record<string, string>} trigger
 * @param {string} digest
 * @param {string} domain
 */
export function triggerEntry(trigger, digest, domain) {
  const { sig, signer, functionCid, createdAt, description = "" } = trigger;
  return entry("trigger", [sig, signer, digest, functionCid, createdAt, textHash(description), domain]);
}

/**
 * The entry of the wallet that deployed a function.
 * @param {Record<string, string>} record
 */
export function functionEntry({ CID, creator, createdAt }) {
  return entry("function", [CID, creator, creator, createdAt]);
}

/**
 * The entry of a deactivation.
 * @param {{signature: string, signer: string, createdAt: string, domain: {name: string}, triggerSigs: string[]}} record
 */
export function deactivationEntry({ signature, signer, createdAt, domain, triggerSigs }) {
  return entry("deactivation", [signature, signer, createdAt, domain.name, ...triggerSigs]);
}

/**
 * @param {string} kind
 * @param {(string | undefined)[]} lines
 */
function entry(kind, lines) {
  if (lines.some((line) => line?.includes("\n"))) throw new TypeError("the record has a value with a line break");
  return [`muniment/${kind}/v1`, ...lines, ""].join("\n");
}

/**
 * The name of an entry's record: no log has two entries of one name.
 * @param {string} text of the entry
 */
export function nameOf(text) {
  const [kind = "", ...lines] = text.split("\n");
  return [kind, ...lines.slice(0, kind === "muniment/function/v1" ? 2 : 1)].join(" ");
}

/**
 * The root of the tree that has `text` at its index, if the hashes are those beside the way up.
 * @param {string} text of the entry
 * @param {Proof} proof
 */
export function rootOf(text, { index, hashes, note }) {
  if (index >= note.size) throw new TypeError("the index lies beyond the tree");
  let hash = sha256(concat([Uint8Array.of(0), utf8(text)]));
  let [at, last] = [index, note.size - 1];
  for (const beside of hashes) {
    if (last === 0) throw new TypeError("the proof has too many hashes");
    if (at % 2 || at === last) {
      hash = node(beside, hash);
      while (at % 2 === 0 && at) [at, last] = [half(at), half(last)];
    } else hash = node(hash, beside);
    [at, last] = [half(at), half(last)];
  }
  if (last !== 0) throw new TypeError("the proof has too few hashes");
  return hash;
}

/** @param {number} number */
function half(number) {
  return Math.floor(number / 2);
}

/**
 * @param {Uint8Array} left
 * @param {Uint8Array} right
 */
function node(left, right) {
  return sha256(concat([Uint8Array.of(1), left, right]));
}

/**
 * The proof in a text (c2sp.org/tlog-proof). Its `extra` is ignored: nothing proves it.
 * @param {string} text
 * @returns {Proof}
 */
export function readProof(text) {
  const at = text.indexOf("\n\n");
  const lines = text.slice(0, at).split("\n").filter((line) => !line.startsWith("extra "));
  const [head, index = "", ...hashes] = lines;
  const number = /^index (0|[1-9][0-9]{0,15})$/.exec(index)?.[1];
  if (at < 0 || head !== HEAD || !number || hashes.length > HASHES_MAX) throw new TypeError("this is no proof");
  return { index: Number(number), hashes: hashes.map((each) => base64(each, 32)), note: readNote(text.slice(at + 2)) };
}

/**
 * The checkpoint in a signed note, whose signatures are not verified.
 * @param {string} text
 * @returns {Note}
 */
export function readNote(text) {
  const at = text.indexOf("\n\n");
  const [origin = "", size = "", root = ""] = text.slice(0, at).split("\n");
  if (at < 0 || !/^(0|[1-9][0-9]{0,15})$/.test(size)) throw new TypeError("this is no checkpoint");
  const lines = text.slice(at + 2).split("\n").flatMap((line) => {
    const [dash, name, signature, ...more] = line.split(" ");
    if (dash !== "\u2014" || !name || !signature || more.length) return [];
    const bytes = base64(signature);
    return [{ name, id: hex(bytes.subarray(0, 4)), bytes: bytes.subarray(4) }];
  });
  return { text: text.slice(0, at + 1), origin, size: Number(size), root: base64(root, 32), lines };
}

/**
 * The time in Unix seconds at which a key signed a note, 0 for a key without times; throws where it did not.
 * `null`: this browser knows no Ed25519.
 * @param {Note} note
 * @param {string} vkey
 * @returns {Promise<number | null>}
 */
export async function signedAt(note, vkey) {
  const [name = "", id = "", ...rest] = vkey.split("+"); // base64 may have a plus
  const kindAndKey = base64(rest.join("+"), 33);
  const [kind] = kindAndKey;
  if (name !== note.origin) throw new TypeError(`the key is of ${name}, the checkpoint of ${note.origin}`);
  const line = note.lines.find((each) => each.name === name && each.id === `0x${id}`);
  const computed = hex(sha256(concat([utf8(`${name}\n`), kindAndKey])).subarray(0, 4));
  if (!line || computed !== `0x${id}` || (kind !== 1 && kind !== 4)) throw new TypeError(`${name} has not signed this checkpoint`);
  const isTimed = kind === 4;
  const seconds = isTimed ? Number(BigInt(hex(line.bytes.subarray(0, 8)))) : 0;
  const message = isTimed ? `cosignature/v1\ntime ${seconds}\n${note.text}` : note.text;
  const key = await importKey(kindAndKey.subarray(1));
  if (!key) return null;
  const signature = line.bytes.subarray(isTimed ? 8 : 0);
  const isRight = await crypto.subtle.verify("Ed25519", key, /** @type {BufferSource} */ (signature), /** @type {BufferSource} */ (utf8(message)));
  if (!isRight) throw new TypeError(`${name} has not signed this checkpoint`);
  return seconds;
}

/** @param {Uint8Array} raw */
async function importKey(raw) {
  try {
    return await crypto.subtle.importKey("raw", /** @type {BufferSource} */ (raw), "Ed25519", false, ["verify"]);
  } catch {
    return null;
  }
}

/**
 * @param {string} text
 * @param {number} [length]
 */
function base64(text, length) {
  const bytes = Uint8Array.from(atob(text), (each) => each.charCodeAt(0));
  if (length !== undefined && bytes.length !== length) throw new TypeError(`${bytes.length} bytes came in place of ${length}`);
  return bytes;
}

/**
 * Check that the log has `text`; throws where it has not.
 * @param {string} text of the entry, built from a record
 * @param {string} answer of the registry
 */
export function checkProof(text, answer) {
  const proof = readProof(answer);
  if (!equal(rootOf(text, proof), proof.note.root)) throw new TypeError("the log does not have this record as it is shown here");
  return proof;
}
