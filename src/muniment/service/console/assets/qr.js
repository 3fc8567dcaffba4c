// A QR code of a text (ISO/IEC 18004), to carry the address of a page to a phone: bytes, error correction level L.

import { utf8 } from "./proofs/bytes.js";

/** Codewords for error correction in each block, and blocks, by version. */
const CORRECTION = [7, 10, 15, 20, 26, 18, 20, 24, 30, 18, 20, 24, 26, 30, 22, 24, 28, 30, 28, 28];
const BLOCKS = [1, 1, 1, 1, 1, 2, 2, 2, 2, 4, 4, 4, 4, 4, 6, 6, 6, 6, 7, 8];
const FORMAT = 0b111011111000100; // Level L, mask 0, as the standard has it with its check bits.
const QUIET = 4; // Modules of margin, which readers need.

/** @typedef {{size: number, dark: boolean[][], fixed: boolean[][]}} Grid */

/**
 * The code as a picture; null for a text of more than 858 bytes.
 * @param {string} text
 * @param {string} label
 */
export function qrCode(text, label) {
  const dark = modules(text);
  if (!dark) return null;
  const size = dark.length + 2 * QUIET;
  const made = (/** @type {string} */ name, /** @type {Record<string, string>} */ attributes) => {
    const part = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) part.setAttribute(key, value);
    return part;
  };
  const path = dark.map((row, y) => row.map((is, x) => (is ? `M${x + QUIET} ${y + QUIET}h1v1h-1z` : "")).join("")).join("");
  const svg = made("svg", { viewBox: `0 0 ${size} ${size}`, class: "qr", role: "img", "aria-label": label });
  svg.append(made("rect", { width: String(size), height: String(size), fill: "#fff" }), made("path", { d: path, fill: "#000" }));
  return svg;
}

/**
 * The dark modules by row; null for a text that is too long.
 * @param {string} text
 * @returns {boolean[][] | null}
 */
export function modules(text) {
  const bytes = utf8(text);
  const version = BLOCKS.findIndex((_, at) => bytes.length <= room(at + 1)) + 1;
  if (!version) return null;
  const grid = drawn(version);
  fillIn(grid, corrected(encoded(bytes, version), version));
  return grid.dark;
}

/** @param {number} version */
function codewords(version) {
  const aligned = version > 1 ? Math.floor(version / 7) + 2 : 0;
  const taken = aligned ? (25 * aligned - 10) * aligned - 55 + (version > 6 ? 36 : 0) : 0;
  return Math.floor(((16 * version + 128) * version + 64 - taken) / 8);
}

/** @param {number} version */
function dataWords(version) {
  return codewords(version) - (CORRECTION[version - 1] ?? 0) * (BLOCKS[version - 1] ?? 0);
}

/**
 * Bytes of text that fit: the mode and the length take 12 bits, or 20 from version 10 on.
 * @param {number} version
 */
function room(version) {
  return dataWords(version) - (version < 10 ? 2 : 3);
}

/**
 * @param {Uint8Array} bytes
 * @param {number} version
 */
function encoded(bytes, version) {
  const length = bytes.length.toString(2).padStart(version < 10 ? 8 : 16, "0");
  const bits = `0100${length}${[...bytes].map((each) => each.toString(2).padStart(8, "0")).join("")}0000`;
  const words = (bits.match(/.{8}/g) ?? []).map((each) => Number.parseInt(each, 2));
  for (let pad = 0xec; words.length < dataWords(version); pad ^= 0xec ^ 0x11) words.push(pad);
  return words;
}

/**
 * The data in blocks with their Reed-Solomon codewords, interleaved.
 * @param {number[]} words
 * @param {number} version
 */
function corrected(words, version) {
  const [count, degree] = [BLOCKS[version - 1] ?? 1, CORRECTION[version - 1] ?? 0];
  const short = Math.floor(words.length / count);
  const longFrom = count - (words.length % count);
  let at = 0;
  const blocks = Array.from({ length: count }, (_, number) => words.slice(at, (at += short + (number < longFrom ? 0 : 1))));
  const checks = blocks.map((block) => remainder(block, generator(degree)));
  const columns = (/** @type {number[][]} */ parts, /** @type {number} */ length) =>
    Array.from({ length }, (_, column) => parts.flatMap((part) => part[column] ?? [])).flat();
  return [...columns(blocks, short + 1), ...columns(checks, degree)];
}

/**
 * The generator polynomial in GF(256), without its leading 1.
 * @param {number} degree
 */
function generator(degree) {
  let found = [...Array(degree - 1).fill(0), 1];
  for (let step = 0, root = 1; step < degree; step += 1, root = times(root, 2)) {
    found = found.map((each, at) => times(each, root) ^ (found[at + 1] ?? 0));
  }
  return found;
}

/**
 * @param {number[]} block
 * @param {number[]} divisor
 */
function remainder(block, divisor) {
  return block.reduce((left, each) => {
    const factor = each ^ (left[0] ?? 0);
    return divisor.map((coefficient, at) => times(coefficient, factor) ^ (left[at + 1] ?? 0));
  }, Array(divisor.length).fill(0));
}

/**
 * @param {number} one
 * @param {number} other
 */
function times(one, other) {
  let product = 0;
  for (let bit = 7; bit >= 0; bit -= 1) product = (product << 1) ^ ((product >> 7) * 0x11d) ^ (((other >> bit) & 1) * one);
  return product;
}

/**
 * The patterns that every code of this version has.
 * @param {number} version
 * @returns {Grid}
 */
function drawn(version) {
  const size = 17 + 4 * version;
  const rows = () => Array.from({ length: size }, () => Array(size).fill(false));
  const grid = { size, dark: rows(), fixed: rows() };
  for (let at = 0; at < size; at += 1) {
    put(grid, at, 6, at % 2 === 0);
    put(grid, 6, at, at % 2 === 0);
  }
  for (const [x, y] of /** @type {[number, number][]} */ ([[3, 3], [size - 4, 3], [3, size - 4]])) square(grid, x, y, 4, [0, 1, 3]);
  const middles = alignment(version, size);
  const last = middles.length - 1;
  middles.forEach((x, i) => middles.forEach((y, j) => {
    const isFinder = (i === 0 && j === 0) || (i === 0 && j === last) || (i === last && j === 0);
    if (!isFinder) square(grid, x, y, 2, [0, 2]);
  }));
  for (let bit = 0; bit < 15; bit += 1) putFormat(grid, bit, ((FORMAT >> bit) & 1) === 1);
  put(grid, 8, size - 8, true);
  if (version > 6) putVersion(grid, version);
  return grid;
}

/**
 * @param {Grid} grid
 * @param {number} x
 * @param {number} y
 * @param {boolean} is dark
 */
function put({ size, dark, fixed }, x, y, is) {
  if (x < 0 || y < 0 || x >= size || y >= size) return;
  /** @type {boolean[]} */ (dark[y])[x] = is;
  /** @type {boolean[]} */ (fixed[y])[x] = true;
}

/**
 * Squares around a middle; those at the distances in `rings` are dark.
 * @param {Grid} grid
 * @param {number} x
 * @param {number} y
 * @param {number} reach
 * @param {number[]} rings
 */
function square(grid, x, y, reach, rings) {
  for (let down = -reach; down <= reach; down += 1) {
    for (let right = -reach; right <= reach; right += 1) {
      const ring = Math.max(Math.abs(down), Math.abs(right));
      put(grid, x + right, y + down, rings.includes(ring));
    }
  }
}

/**
 * @param {number} version
 * @param {number} size
 */
function alignment(version, size) {
  if (version === 1) return [];
  const count = Math.floor(version / 7) + 2;
  const step = Math.ceil((size - 13) / (2 * count - 2)) * 2;
  return [6, ...Array.from({ length: count - 1 }, (_, at) => size - 7 - step * (count - 2 - at))];
}

/**
 * @param {Grid} grid
 * @param {number} bit
 * @param {boolean} is
 */
function putFormat(grid, bit, is) {
  const along = bit < 6 ? bit : bit < 8 ? bit + 1 : grid.size - 15 + bit;
  put(grid, 8, along, is);
  const across = bit < 8 ? grid.size - 1 - bit : bit === 8 ? 7 : 14 - bit;
  put(grid, across, 8, is);
}

/**
 * @param {Grid} grid
 * @param {number} version
 */
function putVersion(grid, version) {
  let check = version;
  for (let step = 0; step < 12; step += 1) check = (check << 1) ^ ((check >> 11) * 0x1f25);
  const bits = (version << 12) | check;
  for (let bit = 0; bit < 18; bit += 1) {
    const [far, near, is] = [grid.size - 11 + (bit % 3), Math.floor(bit / 3), ((bits >> bit) & 1) === 1];
    put(grid, far, near, is);
    put(grid, near, far, is);
  }
}

/**
 * The codewords in columns of two, from the right to the left, up and down, under mask 0.
 * @param {Grid} grid
 * @param {number[]} words
 */
function fillIn({ size, dark, fixed }, words) {
  let bit = 0;
  for (let right = size - 1; right > 0; right -= 2) {
    if (right === 6) right = 5;
    const isUp = ((right + 1) & 2) === 0;
    for (let step = 0; step < size; step += 1) {
      const y = isUp ? size - 1 - step : step;
      for (const x of [right, right - 1]) {
        if (fixed[y]?.[x]) continue;
        const is = (((words[bit >> 3] ?? 0) >> (7 - (bit & 7))) & 1) === 1;
        /** @type {boolean[]} */ (dark[y])[x] = is !== ((x + y) % 2 === 0);
        bit += 1;
      }
    }
  }
}
