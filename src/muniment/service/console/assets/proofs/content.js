// The CID of a bundle, computed as the registry does: a UnixFS directory of two files (specs.ipfs.tech/unixfs).

import { concat, utf8, varint } from "./bytes.js";
import { DAG_PB, RAW, cidBytes, cidText, hashed } from "./cid.js";

/** @typedef {{version: 0 | 1, rawLeaves: boolean, chunk: number, width: number}} Profile */
/** @typedef {{cid: import("./cid.js").Cid, tsize: number, size: number}} Root */

/** The choices on which a CID depends (IPIP-0499). @type {Record<string, Profile>} */
const PROFILES = {
  "unixfs-v0-2015": { version: 0, rawLeaves: false, chunk: 262_144, width: 174 },
  "unixfs-v1-2025": { version: 1, rawLeaves: true, chunk: 1_048_576, width: 1_024 },
};

/**
 * The CID of the bundle of these two files.
 * @param {Uint8Array} manifest
 * @param {Uint8Array} wasm
 * @param {string} profileName
 */
export async function bundleCid(manifest, wasm, profileName) {
  const profile = PROFILES[profileName];
  if (!profile) throw new TypeError(`no profile ${profileName}`);
  // By name, as the bytes of a directory need it.
  const links = [
    link(await file(wasm, profile), "function.wasm"), link(await file(manifest, profile), "manifest.json"),
  ];
  const directory = await node(links, Uint8Array.of(0x08, 0x01), profile);
  return cidText(directory.cid);
}

/**
 * @param {Uint8Array} bytes
 * @param {Profile} profile
 * @returns {Promise<Root>}
 */
async function file(bytes, profile) {
  /** @type {Root[]} */
  let level = [];
  for (let at = 0; at < bytes.length || at === 0; at += profile.chunk) {
    level.push(await leaf(bytes.subarray(at, at + profile.chunk), profile));
  }
  while (level.length > 1) {
    /** @type {Root[]} */
    const above = [];
    for (let at = 0; at < level.length; at += profile.width) above.push(await parent(level.slice(at, at + profile.width), profile));
    level = above;
  }
  return /** @type {Root} */ (level[0]);
}

/**
 * @param {Uint8Array} chunk
 * @param {Profile} profile
 * @returns {Promise<Root>}
 */
async function leaf(chunk, profile) {
  if (!profile.rawLeaves) return { ...(await node([], fileData(chunk, chunk.length, []), profile)), size: chunk.length };
  return { cid: { version: 1, codec: RAW, digest: await hashed(chunk) }, tsize: chunk.length, size: chunk.length };
}

/**
 * @param {Root[]} children
 * @param {Profile} profile
 * @returns {Promise<Root>}
 */
async function parent(children, profile) {
  const size = children.reduce((sum, child) => sum + child.size, 0);
  const data = fileData(new Uint8Array(), size, children.map((child) => child.size));
  const made = await node(children.map((child) => link(child, "")), data, profile);
  return { cid: made.cid, tsize: made.tsize + children.reduce((sum, child) => sum + child.tsize, 0), size };
}

/**
 * A dag-pb node: its links come before its data.
 * @param {Uint8Array[]} links
 * @param {Uint8Array} data
 * @param {Profile} profile
 */
async function node(links, data, profile) {
  const block = concat([...links.map((each) => led(0x12, each)), led(0x0a, data)]);
  return { cid: { version: profile.version, codec: DAG_PB, digest: await hashed(block) }, tsize: block.length };
}

/**
 * A link; its name and its size are there even if they are empty or 0.
 * @param {Root} root
 * @param {string} name
 */
function link(root, name) {
  return concat([led(0x0a, cidBytes(root.cid)), led(0x12, utf8(name)), Uint8Array.of(0x18), varint(root.tsize)]);
}

/**
 * The UnixFS message of a file.
 * @param {Uint8Array} data
 * @param {number} size
 * @param {number[]} childSizes
 */
function fileData(data, size, childSizes) {
  return concat([
    Uint8Array.of(0x08, 0x02), data.length ? led(0x12, data) : data, Uint8Array.of(0x18), varint(size),
    ...childSizes.flatMap((each) => [Uint8Array.of(0x20), varint(each)]),
  ]);
}

/**
 * A protobuf field of bytes.
 * @param {number} tag
 * @param {Uint8Array} bytes
 */
function led(tag, bytes) {
  return concat([Uint8Array.of(tag), varint(bytes.length), bytes]);
}
