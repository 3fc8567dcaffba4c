// EIP-712 and EIP-191: the digests that wallets sign, and who signed them. As strict as the registry's own rules.

import { concat, hex, unhex, utf8, word } from "./bytes.js";
import { keccak256, publicKeyOf } from "./crypto.js";

/** @typedef {{name: string, type: string}} Member */
/** @typedef {Record<string, Member[]>} Types */
/** @typedef {{name: string, version: string}} Domain */
/** @typedef {{domain: Domain, primaryType: string, types: Types, message: Record<string, unknown>}} TypedData */

export const DOMAIN_TYPES = [{ name: "name", type: "string" }, { name: "version", type: "string" }];

// The registry's own limits: no honest trigger comes near them.
const STRUCTS_MAX = 32;
const MEMBERS_MAX = 64;
const LEVELS_MAX = 16;
const DIMENSIONS_MAX = 4;
const VALUES_MAX = 20_000;
// The order of secp256k1 (SEC 2, section 2.4.1).
const ORDER = 0xfffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141n;
const TYPE = /^([A-Za-z_$][A-Za-z0-9_$]*)((?:\[(?:[1-9][0-9]{0,4})?\])*)$/;

/** @param {Domain} domain */
export function domainSeparator(domain) {
  return structHash("EIP712Domain", { EIP712Domain: DOMAIN_TYPES }, { ...domain });
}

/**
 * EIP-712 `hashStruct`. Throws a TypeError for types or values that the registry would refuse.
 * @param {string} primary
 * @param {Types} types
 * @param {unknown} message
 */
export function structHash(primary, types, message) {
  if (Object.keys(types).length > STRUCTS_MAX) throw new TypeError("too many struct types");
  return new Hasher(types).struct(primary, message, 0);
}

/** @param {TypedData} data */
export function digest(data) {
  const hash = structHash(data.primaryType, data.types, data.message);
  return keccak256(concat([Uint8Array.of(0x19, 0x01), domainSeparator(data.domain), hash]));
}

/**
 * The three hashes that wallets and devices show, as hex.
 * @param {TypedData} data
 */
export function hashes(data) {
  return {
    domain: hex(domainSeparator(data.domain)),
    message: hex(structHash(data.primaryType, data.types, data.message)),
    digest: hex(digest(data)),
  };
}

/**
 * EIP-191, version 0x45: the digest of `personal_sign`.
 * @param {string} text
 */
export function textDigest(text) {
  const bytes = utf8(text);
  return keccak256(concat([utf8(`\x19Ethereum Signed Message:\n${bytes.length}`), bytes]));
}

/**
 * The address that signed a digest, in the spelling of EIP-55. Throws a TypeError for what is no signature.
 * @param {Uint8Array} hash
 * @param {string} signature
 */
export function signerOf(hash, signature) {
  const bytes = unhex(signature);
  if (bytes.length !== 65) throw new TypeError("a signature has 65 bytes");
  const [r, s] = [BigInt(hex(bytes.subarray(0, 32))), BigInt(hex(bytes.subarray(32, 64)))];
  if (r <= 0n || r >= ORDER || s <= 0n || s > ORDER / 2n) throw new TypeError("r or s of the signature is out of range");
  const v = /** @type {number} */ (bytes[64]);
  const recovery = v >= 27 ? v - 27 : v;
  if (recovery > 1) throw new TypeError("the last byte of a signature, v, is 27 or 28");
  return checksummed(keccak256(publicKeyOf(hash, bytes.subarray(0, 64), recovery)).subarray(12));
}

/**
 * An address in the spelling of EIP-55.
 * @param {Uint8Array} address
 */
export function checksummed(address) {
  const digits = hex(address).slice(2);
  const hash = hex(keccak256(utf8(digits))).slice(2);
  return `0x${[...digits].map((each, at) => (parseInt(hash[at] ?? "0", 16) > 7 ? each.toUpperCase() : each)).join("")}`;
}

/**
 * An address as it is spelled by EIP-55; null for a text that is none, or has a wrong checksum.
 * @param {string} text
 */
export function addressOf(text) {
  if (!/^0x[0-9a-fA-F]{40}$/.test(text)) return null;
  const spelled = checksummed(unhex(text));
  const digits = text.slice(2);
  const isPlain = digits === digits.toLowerCase() || digits === digits.toUpperCase();
  return isPlain || text === spelled ? spelled : null;
}

/** Hashes structs of one set of types; each type is read once. */
class Hasher {
  /** @param {Types} types */
  constructor(types) {
    this.types = types;
    this.values = 0;
    /** @type {Map<string, Uint8Array>} */
    this.typeHashes = new Map();
  }

  /**
   * @param {string} name
   * @param {unknown} value
   * @param {number} level
   */
  struct(name, value, level) {
    if (level > LEVELS_MAX) throw new TypeError("the types are nested too deeply");
    if (typeof value !== "object" || value === null || Array.isArray(value)) throw new TypeError(`${name} is an object`);
    const members = this.members(name);
    const given = /** @type {Record<string, unknown>} */ (value);
    for (const key of Object.keys(given)) {
      if (!members.some((member) => member.name === key)) throw new TypeError(`${name} has no member ${key}`);
    }
    const parts = [this.typeHash(name)];
    for (const member of members) {
      if (!Object.hasOwn(given, member.name)) throw new TypeError(`${name} lacks ${member.name}`);
      parts.push(this.value(member.type, given[member.name], level));
    }
    return keccak256(concat(parts));
  }

  /**
   * @param {string} type
   * @param {unknown} value
   * @param {number} level
   * @returns {Uint8Array}
   */
  value(type, value, level) {
    this.values += 1;
    if (this.values > VALUES_MAX) throw new TypeError("too many values");
    const array = /^(.*)\[([0-9]*)\]$/.exec(type);
    if (!array) return Object.hasOwn(this.types, type) ? this.struct(type, value, level + 1) : atom(type, value);
    if (!Array.isArray(value)) throw new TypeError(`${type} is an array`);
    if (array[2] && value.length !== Number(array[2])) throw new TypeError(`${type} has another length`);
    return keccak256(concat(value.map((each) => this.value(array[1] ?? "", each, level))));
  }

  /** @param {string} name */
  members(name) {
    const members = Object.hasOwn(this.types, name) ? this.types[name] : undefined;
    if (!Array.isArray(members) || members.length > MEMBERS_MAX) throw new TypeError(`no usable type ${name}`);
    return members;
  }

  /** @param {string} name */
  typeHash(name) {
    const known = this.typeHashes.get(name);
    if (known) return known;
    const others = [...this.reached(name)].filter((each) => each !== name).sort();
    const hash = keccak256(utf8([name, ...others].map((each) => this.written(each)).join("")));
    this.typeHashes.set(name, hash);
    return hash;
  }

  /** @param {string} name */
  written(name) {
    return `${name}(${this.members(name).map((each) => `${each.type} ${each.name}`).join(",")})`;
  }

  /**
   * The struct types that a type refers to, itself among them.
   * @param {string} name
   */
  reached(name) {
    const found = new Set([name]);
    for (const each of found) {
      for (const member of this.members(each)) {
        const type = TYPE.exec(member.type);
        if (!type || (type[2] ?? "").split("[").length > 1 + DIMENSIONS_MAX) throw new TypeError("not a type");
        if (Object.hasOwn(this.types, type[1] ?? "")) found.add(type[1] ?? "");
      }
    }
    return found;
  }
}

/**
 * EIP-712 `encodeData` of a value that is no struct and no array.
 * @param {string} type
 * @param {unknown} value
 */
function atom(type, value) {
  if (type === "string") return text(value);
  if (type === "bool" && typeof value === "boolean") return word(value ? 1n : 0n);
  if (type === "address" && typeof value === "string" && addressOf(value)) return concat([new Uint8Array(12), unhex(value)]);
  if (type === "bytes" && typeof value === "string") return keccak256(unhex(value));
  const fixed = /^bytes([1-9]|[12][0-9]|3[0-2])$/.exec(type);
  if (fixed && typeof value === "string") {
    const bytes = unhex(value);
    if (bytes.length === Number(fixed[1])) return concat([bytes, new Uint8Array(32 - bytes.length)]);
  }
  const range = integerRange(type);
  if (range) return word(integer(type, value, range));
  throw new TypeError(`not a value of ${type}`);
}

/** @param {unknown} value */
function text(value) {
  if (typeof value !== "string" || value.includes("\0")) throw new TypeError("not a string, or one with U+0000");
  const bytes = utf8(value);
  // A lone surrogate would be encoded as U+FFFD, and another text be signed.
  if (new TextDecoder("utf-8", { ignoreBOM: true }).decode(bytes) !== value) throw new TypeError("a lone surrogate");
  return keccak256(bytes);
}

/**
 * The least and the greatest value of an integer type, null for another type.
 * @param {string} type
 * @returns {[bigint, bigint] | null}
 */
export function integerRange(type) {
  const found = /^(u?)int([1-9][0-9]{0,2})?$/.exec(type);
  const bits = BigInt(found?.[2] ?? 256);
  if (!found || bits % 8n || bits > 256n) return null;
  return found[1] ? [0n, (1n << bits) - 1n] : [-(1n << (bits - 1n)), (1n << (bits - 1n)) - 1n];
}

/**
 * @param {string} type
 * @param {unknown} value
 * @param {[bigint, bigint]} range
 */
export function integer(type, value, [least, greatest]) {
  const isExact = typeof value === "number" ? Number.isSafeInteger(value) : typeof value === "string";
  if (!isExact || !/^(0|-?[1-9][0-9]{0,77}|0x[0-9a-fA-F]{1,64})$/.test(String(value))) {
    throw new TypeError(`${type} is a whole number in decimal digits`);
  }
  const number = BigInt(/** @type {string | number} */ (value));
  if (number < least || number > greatest) throw new TypeError(`out of the range of ${type}`);
  return number;
}
