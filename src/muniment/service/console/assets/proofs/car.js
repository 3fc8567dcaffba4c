// A CARv1 file (ipld.io/specs/transport/car/carv1), checked: every block against its CID, and the walk from the root.

import { concat, equal, hex, readVarint, utf8 } from "./bytes.js";
import { DAG_PB, RAW, cidText, hashed, parseCid, readCid } from "./cid.js";

/** @typedef {import("./cid.js").Cid} Cid */
/** @typedef {{cid: Cid, name: string}} Link */
/** @typedef {{links: Link[], kind: number, data: Uint8Array, size: number}} Node */

const DIRECTORY = 1;
const FILE = 2;
// Far above what a bundle of the registry has.
const BLOCKS_MAX = 4_096;
const BYTES_MAX = 64 * 1_048_576;
const DEPTH_MAX = 32;

/**
 * The files that a CAR holds under a CID. Throws a TypeError with a sentence for anything that does not belong.
 * @param {string} text
 * @param {Uint8Array} car
 */
export async function checkCar(text, car) {
  const wanted = parseCid(text);
  const blocks = await readBlocks(car, wanted);
  const root = nodeOf(blockOf(blocks, { ...wanted, codec: DAG_PB }), DAG_PB);
  if (root.kind !== DIRECTORY) throw new TypeError("The CID names no directory.");
  /** @type {{name: string, bytes: Uint8Array}[]} */
  const files = [];
  const left = { blocks: 4 * BLOCKS_MAX, bytes: BYTES_MAX };
  for (const each of root.links) files.push({ name: each.name, bytes: concat([...pieces(blocks, each.cid, 0, left)]) });
  return { blocks: blocks.size, files };
}

/**
 * The blocks of a CAR by digest.
 * @param {Uint8Array} car
 * @param {Cid} wanted
 */
async function readBlocks(car, wanted) {
  const [length, start] = readVarint(car, 0);
  const end = start + length;
  if (end > car.length) throw new TypeError("The file ends within its header.");
  if (!hex(car.subarray(start, end)).includes(hex(concat([Uint8Array.of(0x12, 0x20), wanted.digest])).slice(2))) {
    throw new TypeError("The file has another root than the CID.");
  }
  if (!equal(car.subarray(start + 1, start + 7), utf8("eroots"))) throw new TypeError("The file is no CAR.");
  /** @type {Map<string, Uint8Array>} */
  const blocks = new Map();
  for (let at = end; at < car.length; ) {
    const [size, from] = readVarint(car, at);
    at = from + size;
    if (at > car.length) throw new TypeError("The file ends within a block.");
    const [cid, content] = readCid(car, from);
    if (content > at) throw new TypeError("A block is shorter than its CID.");
    const block = car.subarray(content, at);
    if (!equal(await hashed(block), cid.digest)) throw new TypeError(`The block ${cidText(cid)} has another content.`);
    blocks.set(hex(cid.digest), block);
    if (blocks.size > BLOCKS_MAX) throw new TypeError("The file has too many blocks.");
  }
  return blocks;
}

/**
 * @param {Map<string, Uint8Array>} blocks
 * @param {Cid} cid
 */
function blockOf(blocks, cid) {
  const block = blocks.get(hex(cid.digest));
  if (!block) throw new TypeError(`The block ${cidText(cid)} is missing.`);
  return block;
}

/**
 * The pieces of a file in order. A block may come again: `left` bounds what a small CAR can unfold to.
 * @param {Map<string, Uint8Array>} blocks
 * @param {Cid} cid
 * @param {number} depth
 * @param {{blocks: number, bytes: number}} left
 * @returns {Generator<Uint8Array, number>}
 */
function* pieces(blocks, cid, depth, left) {
  left.blocks -= 1;
  if (depth > DEPTH_MAX || left.blocks < 0) throw new TypeError("The file has too many parts.");
  const block = blockOf(blocks, cid);
  const node = cid.codec === RAW ? { kind: FILE, links: [], data: block, size: block.length } : nodeOf(block, cid.codec);
  if (node.kind !== FILE) throw new TypeError("A part of a file is no file.");
  left.bytes -= node.data.length;
  if (left.bytes < 0) throw new TypeError("The file is too large to be checked here.");
  yield node.data;
  let size = node.data.length;
  for (const each of node.links) size += yield* pieces(blocks, each.cid, depth + 1, left);
  if (size !== node.size) throw new TypeError("A file has another size than its node says.");
  return size;
}

/**
 * A dag-pb node with its UnixFS message.
 * @param {Uint8Array} block
 * @param {number} codec
 * @returns {Node}
 */
function nodeOf(block, codec) {
  if (codec !== DAG_PB) throw new TypeError("The root is no node.");
  /** @type {Node} */
  const node = { links: [], kind: 0, data: new Uint8Array(), size: 0 };
  for (const [tag, value] of fields(block)) {
    if (tag === 0x12 && value instanceof Uint8Array) node.links.push(linkOf(value));
    if (tag === 0x0a && value instanceof Uint8Array) {
      for (const [inner, content] of fields(value)) {
        if (inner === 0x08 && typeof content === "number") node.kind = content;
        if (inner === 0x12 && content instanceof Uint8Array) node.data = content;
        if (inner === 0x18 && typeof content === "number") node.size = content;
      }
    }
  }
  return node;
}

/**
 * @param {Uint8Array} bytes
 * @returns {Link}
 */
function linkOf(bytes) {
  /** @type {Partial<Link>} */
  const link = { name: "" };
  for (const [tag, value] of fields(bytes)) {
    if (tag === 0x0a && value instanceof Uint8Array) link.cid = readCid(value, 0)[0];
    if (tag === 0x12 && value instanceof Uint8Array) link.name = new TextDecoder("utf-8", { fatal: true }).decode(value);
  }
  if (!link.cid) throw new TypeError("A link has no CID.");
  return { cid: link.cid, name: link.name ?? "" };
}

/**
 * The fields of a protobuf message: numbers and bytes.
 * @param {Uint8Array} bytes
 * @returns {Generator<[number, number | Uint8Array]>}
 */
function* fields(bytes) {
  for (let at = 0; at < bytes.length; ) {
    const [tag, afterTag] = readVarint(bytes, at);
    const [value, afterValue] = readVarint(bytes, afterTag);
    if ((tag & 7) === 0) yield [tag, value];
    else if ((tag & 7) !== 2 || afterValue + value > bytes.length) throw new TypeError("A block is no node.");
    else yield [tag, bytes.subarray(afterValue, afterValue + value)];
    at = (tag & 7) === 0 ? afterValue : afterValue + value;
  }
}
