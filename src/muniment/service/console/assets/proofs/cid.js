// CIDs of SHA-256 (github.com/multiformats/cid): as bytes, and as text in either version.

import { base32, base58, concat, readVarint, unbase32, unbase58, varint } from "./bytes.js";
import { sha256 } from "./crypto.js";

/** @typedef {{version: 0 | 1, codec: number, digest: Uint8Array}} Cid */

export const DAG_PB = 0x70;
export const RAW = 0x55;
const SHA2_256 = 0x12;

/**
 * SHA-256 by the browser, or by our own code: a page over plain HTTP has no `crypto.subtle`.
 * @param {Uint8Array} bytes
 * @returns {Promise<Uint8Array>}
 */
export async function hashed(bytes) {
  if (!globalThis.crypto?.subtle) return sha256(bytes);
  return new Uint8Array(await crypto.subtle.digest("SHA-256", /** @type {BufferSource} */ (bytes)));
}

/** @param {Cid} cid */
export function cidBytes({ version, codec, digest }) {
  const hash = concat([varint(SHA2_256), varint(digest.length), digest]);
  return version === 0 ? hash : concat([varint(1), varint(codec), hash]);
}

/** @param {Cid} cid */
export function cidText(cid) {
  return cid.version === 0 ? base58(cidBytes(cid)) : `b${base32(cidBytes(cid))}`;
}

/**
 * The CID at a place, and the place after it. Throws a TypeError for one of another hash or codec.
 * @param {Uint8Array} bytes
 * @param {number} at
 * @returns {[Cid, number]}
 */
export function readCid(bytes, at) {
  if (bytes[at] === SHA2_256) return [{ version: 0, codec: DAG_PB, digest: digestAt(bytes, at + 1) }, at + 34];
  const [version, afterVersion] = readVarint(bytes, at);
  const [codec, afterCodec] = readVarint(bytes, afterVersion);
  const [hash, afterHash] = readVarint(bytes, afterCodec);
  if (version !== 1 || hash !== SHA2_256 || (codec !== DAG_PB && codec !== RAW)) {
    throw new TypeError("a CID of another version, codec or hash");
  }
  return [{ version: 1, codec, digest: digestAt(bytes, afterHash) }, afterHash + 33];
}

/**
 * A CID from text; throws a TypeError.
 * @param {string} text
 */
export function parseCid(text) {
  if (!/^(Qm[1-9A-HJ-NP-Za-km-z]{44}|b[a-z2-7]{58})$/.test(text)) throw new TypeError("not a CID of SHA-256");
  const bytes = text.startsWith("Qm") ? unbase58(text) : unbase32(text.slice(1));
  const [cid, end] = readCid(bytes, 0);
  if (end !== bytes.length) throw new TypeError("a CID with bytes after it");
  return cid;
}

/**
 * @param {Uint8Array} bytes
 * @param {number} at
 */
function digestAt(bytes, at) {
  if (bytes[at] !== 32 || bytes.length < at + 33) throw new TypeError("a digest of SHA-256 has 32 bytes");
  return bytes.slice(at + 1, at + 33);
}
