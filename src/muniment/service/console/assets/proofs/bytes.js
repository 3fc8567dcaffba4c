// Bytes as text and back: hex, UTF-8, base58btc, base32, and unsigned varints (LEB128).

const BASE58 = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz";
const BASE32 = "abcdefghijklmnopqrstuvwxyz234567";
// A CID in base58 has 46 characters; the cost of this base is the square of its length.
const BASE58_LENGTH_MAX = 128;
// Seven bits a byte, as many as Number holds exactly.
const VARINT_BYTES_MAX = 7;

/** @param {Uint8Array} bytes */
export function hex(bytes) {
  let text = "0x";
  for (const byte of bytes) text += byte.toString(16).padStart(2, "0");
  return text;
}

/**
 * The bytes of `0x` and an even number of hex digits; throws a TypeError for another text.
 * @param {string} text
 */
export function unhex(text) {
  if (!/^0x([0-9a-fA-F]{2})*$/.test(text)) throw new TypeError("expected 0x and an even number of hex digits");
  const bytes = new Uint8Array(text.length / 2 - 1);
  for (let at = 0; at < bytes.length; at += 1) bytes[at] = parseInt(text.slice(2 + 2 * at, 4 + 2 * at), 16);
  return bytes;
}

/** @param {string} text */
export function utf8(text) {
  return new TextEncoder().encode(text);
}

/** @param {readonly Uint8Array[]} parts */
export function concat(parts) {
  const joined = new Uint8Array(parts.reduce((size, part) => size + part.length, 0));
  let at = 0;
  for (const part of parts) {
    joined.set(part, at);
    at += part.length;
  }
  return joined;
}

/**
 * @param {Uint8Array} one
 * @param {Uint8Array} other
 */
export function equal(one, other) {
  return one.length === other.length && one.every((byte, at) => byte === other[at]);
}

/**
 * A whole number as 32 bytes, the first byte first; a negative one in two's complement.
 * @param {bigint} number
 */
export function word(number) {
  return unhex(`0x${BigInt.asUintN(256, number).toString(16).padStart(64, "0")}`);
}

/** @param {Uint8Array} bytes */
export function base58(bytes) {
  const zeros = bytes.findIndex((byte) => byte !== 0);
  let number = bytes.length ? BigInt(hex(bytes) === "0x" ? 0 : hex(bytes)) : 0n;
  let text = "";
  for (; number > 0n; number /= 58n) text = BASE58[Number(number % 58n)] + text;
  return "1".repeat(zeros < 0 ? bytes.length : zeros) + text;
}

/** @param {string} text */
export function unbase58(text) {
  if (text.length > BASE58_LENGTH_MAX) throw new TypeError("too long for base58");
  let number = 0n;
  for (const character of text) {
    const digit = BASE58.indexOf(character);
    if (digit < 0) throw new TypeError("not base58");
    number = number * 58n + BigInt(digit);
  }
  const zeros = text.length - text.replace(/^1+/, "").length;
  const digits = number ? number.toString(16) : "";
  return concat([new Uint8Array(zeros), unhex(`0x${digits.length % 2 ? "0" : ""}${digits}`)]);
}

/** @param {Uint8Array} bytes */
export function base32(bytes) {
  let text = "";
  let bits = 0;
  let held = 0;
  for (const byte of bytes) {
    held = (held << 8) | byte;
    for (bits += 8; bits >= 5; bits -= 5) text += BASE32[(held >> (bits - 5)) & 31];
    held &= (1 << bits) - 1;
  }
  return bits ? text + BASE32[(held << (5 - bits)) & 31] : text;
}

/** @param {string} text */
export function unbase32(text) {
  /** @type {number[]} */
  const bytes = [];
  let bits = 0;
  let held = 0;
  for (const character of text) {
    const digit = BASE32.indexOf(character);
    if (digit < 0) throw new TypeError("not base32");
    held = (held << 5) | digit;
    bits += 5;
    if (bits >= 8) {
      bits -= 8;
      bytes.push(held >> bits);
      held &= (1 << bits) - 1;
    }
  }
  if (held || bits >= 5) throw new TypeError("not the shortest base32");
  return Uint8Array.from(bytes);
}

/** @param {number} number */
export function varint(number) {
  /** @type {number[]} */
  const bytes = [];
  for (; number >= 128; number = Math.floor(number / 128)) bytes.push((number % 128) | 128);
  return Uint8Array.from([...bytes, number]);
}

/**
 * The varint at a place, and the place after it. Throws if it is cut off, too large or not the shortest form.
 * @param {Uint8Array} bytes
 * @param {number} at
 * @returns {[number, number]}
 */
export function readVarint(bytes, at) {
  let number = 0;
  for (let count = 0; count < VARINT_BYTES_MAX; count += 1) {
    const byte = bytes[at + count];
    if (byte === undefined) break;
    number += (byte & 127) * 128 ** count;
    if (byte < 128) {
      if (byte === 0 && count) break;
      return [number, at + count + 1];
    }
  }
  throw new TypeError("not a varint");
}
