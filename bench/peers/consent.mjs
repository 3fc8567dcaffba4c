// Whether a trigger is one that its signer signed: the shape of its typed data, then the signature over it.
import { createRequire } from "node:module";
import { TypedDataEncoder, concat, getAddress, keccak256, recoverAddress } from "ethers";

const DOMAIN = { name: "Mimic Protocol - Registry", version: "1" };
const HALF_ORDER = "7fffffffffffffffffffffffffffffff5d576e7357a4501ddfe92f46681b20a0";
const DECIMAL = /^(0|[1-9][0-9]{0,77})$/;
const FRACTION = /^[0-9]+(\.[0-9]+)?$/;
const TRIGGER = {
  functionCid: ["string"], version: ["string"], input: ["Input"], config: ["Config"],
  executionFeeLimit: ["uint256", "string"], minValidations: ["uint8"],
};
// The peer takes cron triggers, which are the ones that are measured.
const CONFIG = { type: ["uint8"], schedule: ["string"], delta: ["string"], endDate: ["uint256"] };
const TOKEN = { address: ["address"], chainId: ["uint256"] };
const TOKEN_AMOUNT = { token: ["Token"], amount: ["string"] };
const TYPES_KEPT = 512;

export class Refused extends Error {
  constructor(code, status = 400) {
    super(code);
    this.statusCode = status;
    this.code = code;
  }
}

const check = (holds, code) => {
  if (!holds) throw new Refused(code);
};

/** Check types and values against what the function takes; the encoder for the types. */
export function checkShape({ types, values }, inputs) {
  const { input, config } = values;
  check(sameNames(input, inputs) && sameNames(config, CONFIG), "invalid-typed-data");
  check(config.type === 0 && isTime(config.endDate), "invalid-config");
  check(!Number(config.endDate) || Number(config.endDate) > Date.now(), "invalid-timestamp");
  check(String(config.schedule).split(" ").length === 5 && /^[0-9]+[smhd]$/.test(config.delta), "invalid-config");
  check(DECIMAL.test(values.executionFeeLimit), "invalid-typed-data");
  for (const name in inputs) {
    if (inputs[name] === "Token") checkToken(input[name]);
    if (inputs[name] === "TokenAmount") {
      check(sameNames(input[name], TOKEN_AMOUNT) && FRACTION.test(input[name].amount), "invalid-typed-data");
      checkToken(input[name].token);
    }
  }
  return encoderOf(types, inputs);
}

const isTime = (value) => Number.isSafeInteger(value) ? value >= 0 : typeof value === "string" && DECIMAL.test(value);

const checkToken = (token) => check(sameNames(token, TOKEN), "invalid-typed-data");

function sameNames(given, wanted) {
  if (typeof given !== "object" || given === null) return false;
  const names = Object.keys(given);
  return names.length === Object.keys(wanted).length && names.every((name) => Object.hasOwn(wanted, name));
}

// What was found good is kept: a function's triggers have two or three spellings of types.
const kept = new Map();

function encoderOf(types, inputs) {
  const key = JSON.stringify([types, inputs]);
  let encoder = kept.get(key);
  if (!encoder) {
    checkTypes(types, inputs);
    encoder = TypedDataEncoder.from(types);
    check(encoder.primaryType === "Trigger", "invalid-typed-data");
    if (kept.size === TYPES_KEPT) kept.clear();
    kept.set(key, encoder);
  }
  return encoder;
}

function checkTypes(types, inputs) {
  const words = Object.values(inputs);
  const bare = { int: "int256", uint: "uint256" };
  const wanted = {
    Trigger: TRIGGER,
    Config: CONFIG,
    Input: Object.fromEntries(Object.entries(inputs).map(([name, word]) => [name, [bare[word] ?? word]])),
  };
  if (words.includes("TokenAmount")) wanted.TokenAmount = TOKEN_AMOUNT;
  if (words.includes("TokenAmount") || words.includes("Token")) wanted.Token = TOKEN;
  check(sameNames(types, wanted), "invalid-typed-data");
  for (const struct in wanted) {
    const members = types[struct];
    check(Array.isArray(members) && members.length === Object.keys(wanted[struct]).length, "invalid-typed-data");
    const seen = new Set(members.map(({ name }) => name));
    check(seen.size === members.length, "invalid-typed-data");
    check(members.every(({ name, type }) => wanted[struct][name]?.includes(type)), "invalid-typed-data");
  }
  check(Object.keys(inputs).every((name, at) => types.Input[at].name === name), "invalid-typed-data");
}

/** The one spelling of a signature: lower case, v 27 or 28, low s. */
export function canonical(sig) {
  const hex = sig.slice(2).toLowerCase();
  const v = { "1b": "1b", "1c": "1c", "00": "1b", "01": "1c" }[hex.slice(128)];
  check(v && hex.slice(64, 128) <= HALF_ORDER, "invalid-signature");
  return hex.slice(0, 128) + v;
}

/**
 * How a signature is checked: by ethers alone, or by ethers' hashes and libsecp256k1. Both give the digest.
 *
 * ethers' `verifyTypedData` is `recoverAddress` of the hash by an encoder that it makes anew each time; here it is kept.
 */
export function verifier(curve) {
  const recover = curve === "ethers" ? recoverByEthers : nativeRecover();
  return (values, encoder, sig, signer) => {
    const digest = keccak256(concat(["0x1901", SEPARATOR, encoder.hash(values)]));
    if (recover(digest, sig) !== signer) throw new Refused("signature-mismatch", 401);
    return Buffer.from(digest.slice(2), "hex");
  };
}

const SEPARATOR = TypedDataEncoder.hashDomain(DOMAIN);

function recoverByEthers(digest, sig) {
  try {
    return recoverAddress(digest, `0x${sig}`).toLowerCase();
  } catch {
    return null;
  }
}

function nativeRecover() {
  // Without the fall-back to a curve in JavaScript that the package's main file has.
  const secp256k1 = createRequire(import.meta.url)("secp256k1/bindings.js");
  return (digest, sig) => {
    const raw = Buffer.from(sig, "hex");
    try {
      const key = secp256k1.ecdsaRecover(raw.subarray(0, 64), raw[64] - 27, Buffer.from(digest.slice(2), "hex"), false);
      return `0x${keccak256(key.subarray(1)).slice(26)}`;
    } catch {
      return null;
    }
  };
}

/** An address in lower case; its checksum (EIP-55) is checked where it has one. */
export function addressOf(text) {
  try {
    return getAddress(text).toLowerCase();
  } catch {
    throw new Refused("invalid-address");
  }
}
