// Events such as `Transfer(address,address,uint256)`, and their topic.

import { hex, utf8 } from "./proofs/bytes.js";
import { keccak256 } from "./proofs/crypto.js";
import { integerRange } from "./proofs/typed-data.js";

// The types of parameters in full (Solidity, ABI specification).
const TYPE = /^(u?int[1-9][0-9]*|address|bool|string|function|bytes([1-9]|[12][0-9]|3[0-2])?)(\[[0-9]*\])*$/;

/**
 * The first topic of an event.
 * @param {string} typed
 */
export function topicOf(typed) {
  return hex(keccak256(utf8(canonicalEvent(typed))));
}

/**
 * An event as the hash of its first topic has it: its name and the full types of its parameters, without spaces. A short
 * type such as `uint` would give the hash of an event that no contract logs.
 * @param {string} typed
 */
function canonicalEvent(typed) {
  const event = typed.replaceAll(/\s*([(),])\s*/g, "$1");
  let [, types = ""] = /^[A-Za-z_$][A-Za-z0-9_$]*(\(.*\))$/.exec(event) ?? [];
  // From the inside out, a tuple of types is a type.
  for (let inner = true; inner && types !== "bool";) {
    inner = false;
    types = types.replaceAll(/\(([^()]*)\)/g, (_, members) => {
      inner = !members || members.split(",").every(isType);
      return inner ? "bool" : "!";
    });
  }
  if (types !== "bool") throw new Error("neither 0x and 64 hex digits nor an event in full types, such as Transfer(address,address,uint256)");
  return event;
}

/** @param {string} type */
function isType(type) {
  const found = TYPE.exec(type);
  return found !== null && (!/int/.test(type) || integerRange(found[1] ?? "") !== null);
}
