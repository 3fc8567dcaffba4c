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
// The choice of a value that is none of the known ones.
const OTHER = "#";

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
  if (type === "TokenAmount") return tokenAmount(label, pointer, hint);
  if (type === "address") return address(label, pointer, hint);
  const range = integerRange(type);
  if (range) return /chain/i.test(name) ? chain(pointer, hint, label, type, range) : number(label, type, range, pointer, hint);
  if (type === "string") return text(label, pointer, (typed) => typed, hint, { rows: 2 });
  return text(label, pointer, (typed) => bytes(type, typed), hint);
}

/**
 * @param {string} label
 * @param {string} pointer
 * @param {Child} hint
 */
function token(label, pointer, hint) {
  const chainId = chain(`${pointer}/chainId`, "");
  const by = known("Token", `${pointer}/address`, "", [], address("Address of the token", `${pointer}/address`, ""));
  const all = group(label, { chainId, address: by }, pointer, hint);
  const show = () => by.offer(tokensOf(chainId).map((each) => [each.value, each.text]));
  chainId.node.addEventListener("input", show);
  return { ...all, chainId, by, write: (/** @type {any} */ value) => {
    all.write(value);
    show();
  } };
}

/**
 * The tokens of a chain that the page knows.
 * @param {Field} chainId
 */
function tokensOf(chainId) {
  const chosen = valueOf(chainId);
  return /** @type {HTMLOptionElement[]} */ ([...document.querySelectorAll("#tokens option")]).filter((each) => each.dataset["chain"] === chosen);
}

/**
 * @param {string} label
 * @param {string} pointer
 * @param {Child} hint
 */
function tokenAmount(label, pointer, hint) {
  const which = token("Token", `${pointer}/token`, "");
  const hinted = "Like 1 or 1.5";
  const much = explained(text("Amount, in units of the token", `${pointer}/amount`, (typed) => {
    if (!/^[0-9]+(\.[0-9]+)?$/.test(typed)) throw new Error("an amount is like 1 or 1.5");
    return typed;
  }, hinted), hinted, (typed) => {
    const decimals = Number(tokensOf(which.chainId).find((each) => each.value === valueOf(which.by))?.dataset["decimals"]);
    const rest = typed.split(".")[1] ?? "";
    if (!(decimals >= rest.length)) return decimals >= 0 ? `The token has ${decimals} decimals.` : "";
    return `= ${BigInt(typed.replace(".", "") + "0".repeat(decimals - rest.length))} base units`;
  });
  which.node.addEventListener("input", () => much.node.dispatchEvent(new Event("input")));
  return group(label, { token: which, amount: much }, pointer, hint);
}

/**
 * The value of a field; null while it has a fault, which is shown when the form is read.
 * @param {Field} field
 */
function valueOf(field) {
  try {
    return field.read();
  } catch {
    return null;
  }
}

/**
 * A choice of known values by their names before the field for all others, which holds the value.
 * @param {string} label
 * @param {string} pointer
 * @param {Child} hint
 * @param {[string, string][]} values
 * @param {Field} field
 * @returns {Field & {offer: (values: [string, string][]) => void}}
 */
function known(label, pointer, hint, values, field) {
  const select = element("select", { name: `${pointer}#known` });
  const input = /** @type {HTMLInputElement} */ (field.node.querySelector("input"));
  const isListed = () => values.some(([value]) => value === input.value);
  const show = () => {
    if (input.value) select.value = isListed() ? input.value : OTHER;
    field.node.hidden = select.value !== OTHER;
  };
  const offer = (/** @type {[string, string][]} */ offered) => {
    const wasListed = isListed();
    values = offered;
    const chosen = select.value;
    fill(select, ...[["", "choose one"], ...values, [OTHER, "another …"]].map(([value, words]) => element("option", { value }, words)));
    // What was chosen by its name is no value of other names.
    if (wasListed && !isListed()) input.value = "";
    select.value = wasListed || chosen !== OTHER ? "" : OTHER;
    show();
  };
  select.addEventListener("input", () => {
    field.write(select.value === OTHER ? "" : select.value);
    show();
  });
  field.node.addEventListener("input", () => {
    // The text of a reader stays in its field; what a reload brings back is shown by its name.
    if (field.node.hidden) show();
  });
  offer(values);
  return {
    node: element("div", {}, labelled(label, select, hint), field.node), offer,
    read: () => {
      if (field.node.hidden && !select.value && !input.value) throw new Error("choose one");
      return field.read();
    },
    write: (value) => {
      field.write(value);
      show();
    },
    blame: (words) => {
      blame(select, field.node.hidden ? words : "");
      field.blame?.(field.node.hidden ? "" : words);
    },
  };
}

/**
 * A field whose value may be none: that is a choice of its own, which nobody makes by leaving a field empty.
 * @param {string} label
 * @param {string} some
 * @param {string} none
 * @param {Field} field
 * @param {unknown} nothing the value for none
 * @returns {Field}
 */
export function orNone(label, some, none, field, nothing) {
  const name = `${field.node.querySelector("input")?.name}#none`;
  const kind = choice(label, [["some", some], ["none", none]], name, "", String);
  const show = () => { field.node.hidden = kind.read() === "none"; };
  kind.node.addEventListener("input", show);
  return {
    node: element("div", { class: "two" }, kind.node, field.node),
    read: () => (kind.read() === "none" ? nothing : checked(field)),
    write: (value) => {
      const isNone = String(value) === String(nothing);
      kind.write(isNone ? "none" : "some");
      if (!isNone) field.write(value);
      show();
    },
  };
}

/**
 * An amount of US dollars, whose value is a whole number with 18 decimals.
 * @param {string} label
 * @param {string} pointer
 * @returns {Field}
 */
export function dollars(label, pointer) {
  const field = text(label, pointer, (typed) => {
    const [, whole = "", rest = ""] = /^([0-9]{1,60})(?:\.([0-9]{1,18}))?$/.exec(typed) ?? [];
    const value = BigInt(whole + rest.padEnd(18, "0"));
    if (!whole || !value) throw new Error("an amount above 0, such as 1 or 0.05");
    return integer("uint256", value.toString(), [1n, 2n ** 256n - 1n]).toString();
  }, "", { inputmode: "decimal" });
  const shown = explained(field, "", (value) => `Signed as ${value}, dollars × 10¹⁸`);
  return { ...shown, write: (value) => {
    const digits = /^[0-9]{1,78}$/.test(String(value)) ? String(value).padStart(19, "0") : "";
    shown.write(digits ? `${digits.slice(0, -18)}.${digits.slice(-18)}`.replace(/\.?0+$/, "") : value);
  } };
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
 * @returns {Field}
 */
export function number(label, type, range, pointer, hint) {
  const field = text(label, pointer, (typed) => {
    if (!typed) throw new Error("a number is missing");
    return integer(type, expanded(typed), range).toString();
  }, hint, { inputmode: "numeric" });
  return explained(field, hint, (value) => inWei(BigInt(String(value))));
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
    const value = valueOf(field);
    const words = value === null ? "" : meaning(value);
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
    const value = valueOf(field);
    if (value) field.write(value);
  });
  return field;
}

/**
 * @param {string} pointer
 * @param {Child} hint
 * @param {string} [label]
 * @param {string} [type]
 * @param {[bigint, bigint]} [range]
 */
export function chain(pointer, hint, label = "Chain", type = "uint64", range = [1n, 2n ** 53n - 1n]) {
  const options = /** @type {HTMLOptionElement[]} */ ([...document.querySelectorAll("#chains option")]);
  return known(label, pointer, hint, options.map((each) => [each.value, `${each.text} (${each.value})`]), number("Number of the chain", type, range, pointer, ""));
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
    read: () => checkedAll(fields),
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

/**
 * The values of fields by name. Every field is read, so that each shows its own error.
 * @param {Record<string, Field>} fields
 */
export function checkedAll(fields) {
  let isFaulty = false;
  const values = Object.entries(fields).map(([name, field]) => {
    try {
      return [name, checked(field)];
    } catch {
      isFaulty = true;
      return [name, null];
    }
  });
  if (isFaulty) throw new Faulty();
  return Object.fromEntries(values);
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
