// Fields of a form, each for a value of one type: it reads what was typed, or says what is wrong with it.

import { blame, element, fill, labelled, strange } from "./dom.js";
import { addressOf, integer, integerRange } from "./proofs/typed-data.js";

/** @typedef {import("./dom.js").Child} Child */

/**
 * @typedef {object} Field
 * @property {HTMLElement} node
 * @property {() => unknown} read throws an Error with what is wrong
 * @property {(value: any) => void} write
 * @property {(words: string) => void} [blame] a field of several parts has none: each of them says what is wrong with it
 */

// From here on a number probably counts the smallest units of a token of 18 decimals.
const HINTED_FROM = 10n ** 14n;
const WEI = 10n ** 18n;

/**
 * A field for an input of a function.
 * @param {string} name
 * @param {string} type
 * @param {string} meaning
 * @param {string} pointer
 * @returns {Field}
 */
export function fieldOf(name, type, meaning, pointer) {
  const label = `${name} · ${type}`;
  const hint = meaning ? strange(meaning) : "";
  if (type === "bool") return choice(label, [["false", "false"], ["true", "true"]], pointer, hint, (text) => text === "true");
  if (type === "Token") return token(label, pointer, hint);
  if (type === "TokenAmount") {
    return group(label, { token: token("Token", `${pointer}/token`, ""), amount: text("Amount, in units of the token", `${pointer}/amount`, amount, "Like 1 or 1.5") }, pointer, hint);
  }
  if (type === "address") return address(label, pointer, hint);
  const range = integerRange(type);
  if (range) return number(label, type, range, pointer, hint, /chain/i.test(name));
  if (type === "string") return text(label, pointer, (typed) => typed, hint, { rows: 2 });
  return text(label, pointer, (typed) => bytes(type, typed), hint);
}

/**
 * @param {string} label
 * @param {string} pointer
 * @param {Child} hint
 */
function token(label, pointer, hint) {
  return group(label, { address: address("Address", `${pointer}/address`, ""), chainId: chain(`${pointer}/chainId`, "") }, pointer, hint);
}

/**
 * A field of one line, or with `rows` of several, whose text is taken as it is. `convert` gives the value of what was
 * typed, or throws an Error with what is wrong. A value of a link that the browser drops, such as `soon` as a time, is
 * refused until the reader gives another one.
 * @param {string} label
 * @param {string} pointer
 * @param {(text: string) => unknown} convert
 * @param {Child} [hint]
 * @param {Record<string, string | number | boolean>} [attributes]
 * @returns {Field}
 */
export function text(label, pointer, convert, hint = "", attributes = {}) {
  const input = element("rows" in attributes ? "textarea" : "input", { name: pointer, spellcheck: "false", autocomplete: "off", ...attributes });
  let dropped = "";
  input.addEventListener("input", () => { dropped = ""; });
  return {
    node: labelled(label, input, hint),
    read: () => {
      if (dropped) throw new Error(`the link gives “${dropped}”, which does not fit here: choose a value`);
      return convert("rows" in attributes ? input.value : input.value.trim());
    },
    write: (value) => {
      const given = typeof value === "object" ? JSON.stringify(value) : String(value);
      input.value = given;
      dropped = input.value === given ? "" : given;
    },
    blame: (words) => blame(input, words),
  };
}

/**
 * @param {string} label
 * @param {[string, string][]} options value and words
 * @param {string} pointer
 * @param {Child} hint
 * @param {(text: string) => unknown} convert
 * @returns {Field}
 */
export function choice(label, options, pointer, hint, convert) {
  const input = element("select", { name: pointer }, ...options.map(([value, words]) => element("option", { value }, words)));
  return {
    node: labelled(label, input, hint),
    read: () => {
      // A link may give a value that is none of the options: no option is chosen then.
      if (input.selectedIndex < 0) throw new Error("choose one");
      return convert(input.value);
    },
    write: (value) => { input.value = String(value); },
    blame: (words) => blame(input, words),
  };
}

/**
 * A whole number. `1e18` may be typed for 18 zeros; what it amounts to stands below.
 * @param {string} label
 * @param {string} type
 * @param {[bigint, bigint]} range
 * @param {string} pointer
 * @param {Child} hint
 * @param {boolean} isChain
 * @returns {Field}
 */
export function number(label, type, range, pointer, hint, isChain = false) {
  const field = text(label, pointer, (typed) => {
    if (!typed) throw new Error("a number is missing");
    return integer(type, expanded(typed), range).toString();
  }, hint, { inputmode: "numeric", ...(isChain ? { list: "chains" } : {}) });
  return explained(field, hint, (value) => (isChain ? chainName(BigInt(String(value))) : inWei(BigInt(String(value)))));
}

/**
 * The field with a hint that also tells what its value means.
 * @param {Field} field
 * @param {Child} hint
 * @param {(value: any) => string} meaning
 * @returns {Field}
 */
export function explained(field, hint, meaning) {
  const place = /** @type {Element} */ (field.node.querySelector(".hint"));
  const show = () => {
    let words = "";
    try {
      words = meaning(field.read());
    } catch {
      // Errors are shown when the form is read.
    }
    fill(place, hint, hint && words && element("br"), words);
  };
  field.node.addEventListener("input", show);
  return {
    ...field,
    write: (value) => {
      field.write(value);
      show();
    },
  };
}

/**
 * @param {string} label
 * @param {string} pointer
 * @param {Child} hint
 * @returns {Field}
 */
export function address(label, pointer, hint) {
  const field = text(label, pointer, (typed) => {
    const found = addressOf(typed);
    if (!found) throw new Error(typed ? "not an address, or its checksum is wrong (EIP-55)" : "an address is missing");
    return found;
  }, hint, { placeholder: "0x…" });
  // Shown with its checksum, as the wallet will show it.
  field.node.addEventListener("change", () => {
    try {
      field.write(field.read());
    } catch {
      // Said when the form is read.
    }
  });
  return field;
}

/**
 * @param {string} pointer
 * @param {Child} hint
 */
export function chain(pointer, hint) {
  return number("Chain", "uint64", [1n, 2n ** 53n - 1n], pointer, hint, true);
}

/**
 * Fields that belong together.
 * @param {string} label
 * @param {Record<string, Field>} fields
 * @param {string} pointer
 * @param {Child} hint
 * @returns {Field}
 */
export function group(label, fields, pointer, hint) {
  const all = Object.entries(fields);
  return {
    node: element("fieldset", {}, element("legend", {}, label), hint ? element("p", { class: "hint faint" }, hint) : null,
      ...all.map(([, field]) => field.node)),
    read: () => Object.fromEntries(all.map(([name, field]) => [name, checked(field)])),
    write: (value) => all.forEach(([name, field]) => value?.[name] !== undefined && field.write(value[name])),
  };
}

/**
 * The value of a field. An error is shown at the field, and thrown.
 * @param {Field} field
 */
export function checked(field) {
  try {
    const value = field.read();
    field.blame?.("");
    return value;
  } catch (error) {
    if (!(error instanceof Faulty)) field.blame?.(error instanceof Error ? error.message : String(error));
    throw new Faulty();
  }
}

/** A form that cannot be read yet: its fields say why. */
export class Faulty extends Error {
  constructor() {
    super("Something in the form is still missing or wrong.");
  }
}

/** @param {string} typed */
function expanded(typed) {
  const found = /^([0-9]{1,78})(?:\.([0-9]{1,77}))?[eE]([0-9]{1,2})$/.exec(typed);
  if (!found) return typed;
  const [, whole = "", rest = "", power = "0"] = found;
  if (rest.length > Number(power)) throw new Error("that is no whole number");
  return BigInt(whole + rest.padEnd(Number(power), "0")).toString();
}

/** @param {string} typed */
function amount(typed) {
  if (!/^[0-9]+(\.[0-9]+)?$/.test(typed)) throw new Error("an amount is like 1 or 1.5");
  return typed;
}

/**
 * @param {string} type
 * @param {string} typed
 */
function bytes(type, typed) {
  const size = /^bytes([0-9]*)$/.exec(type)?.[1];
  if (!/^0x([0-9a-fA-F]{2})*$/.test(typed)) throw new Error("expected 0x and an even number of hex digits");
  if (size && typed.length !== 2 + 2 * Number(size)) throw new Error(`${type} has ${size} bytes`);
  return typed;
}

/** @param {bigint} value */
function inWei(value) {
  if (value < HINTED_FROM) return "";
  const rest = (value % WEI).toString().padStart(18, "0").replace(/0+$/, "");
  return `= ${(value / WEI).toLocaleString("en")}${rest ? `.${rest}` : ""} × 10¹⁸`;
}

/** @param {bigint} id */
function chainName(id) {
  const option = document.querySelector(`#chains option[value="${id}"]`);
  return option?.textContent ?? "";
}
