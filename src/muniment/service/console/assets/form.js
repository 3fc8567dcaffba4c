// The form of a trigger: its fields for one function, what they say together, and what the tab keeps of it.

import { configField } from "./config.js";
import { blame } from "./dom.js";
import { Faulty, checked, fieldOf, number, text } from "./fields.js";

/** @typedef {import("./fields.js").Field} Field */
/** @typedef {import("./api.js").Fault} Fault */
/** @typedef {{CID: string, name: string, version: string, description: string}} FunctionRecord */
/** @typedef {ReturnType<typeof fieldsOf>} Parts */

const KEPT = "muniment-wizard";
const UINT256 = /** @type {[bigint, bigint]} */ ([0n, 2n ** 256n - 1n]);
const DESCRIPTION_LENGTH_MAX = 1000;

/**
 * @param {FunctionRecord} record
 * @param {{inputs?: Record<string, any>}} manifest
 */
export function fieldsOf(record, manifest) {
  const declared = Object.entries(manifest.inputs ?? {});
  const inputs = declared.map(([name, each]) => typeof each === "string"
    ? fieldOf(name, each, "", `/input/${name}`)
    : fieldOf(name, each.type, each.description ?? "", `/input/${name}`));
  const parts = {
    cid: record.CID, names: declared.map(([name]) => name), inputs, config: configField(),
    description: text("Description, for lists; it is not signed", "/description", (typed) => {
      if (!typed || typed.length > DESCRIPTION_LENGTH_MAX) throw new Error("1 to 1000 characters");
      return typed;
    }),
    version: text("Version of the trigger", "/version", String, "Another version gives another signature"),
    fee: number("Fee limit for each run, 0 for none", "uint256", UINT256, "/executionFeeLimit",
      "In US dollars × 10^18: 1000000000000000000 is one dollar"),
    validations: number("Validations", "uint8", [1n, 255n], "/minValidations", "How many relayers must agree on a run"),
  };
  parts.description.write(record.name);
  parts.version.write(record.version);
  parts.fee.write("0");
  parts.validations.write("1");
  return parts;
}

/**
 * The form as `/triggers/sign-params` takes it. Every field is read, so that each shows its own error.
 * @param {Parts} parts
 */
export function bodyOf(parts) {
  let isFaulty = false;
  const read = (/** @type {Field} */ field) => {
    try {
      return checked(field);
    } catch {
      isFaulty = true;
    }
  };
  read(parts.description);
  const body = {
    functionCid: parts.cid, version: read(parts.version),
    input: Object.fromEntries(parts.inputs.map((field, at) => [parts.names[at], read(field)])),
    config: read(parts.config), executionFeeLimit: read(parts.fee), minValidations: Number(read(parts.validations)),
  };
  if (isFaulty) throw new Faulty();
  return body;
}

/**
 * Say at its field what a refusal is about; the faults for which there is no field come back.
 * @param {Fault[]} faults
 */
export function blameFields(faults) {
  const controls = /** @type {HTMLElement[]} */ ([...document.querySelectorAll("#wizard [name]")])
    .filter((control) => !control.closest("[hidden]"));
  return faults.filter(({ pointer = "", detail }) => {
    // The refusal of a signed trigger names its values by a prefix, that of a preview without it.
    const control = nearest(controls, pointer.replace(/^\/typedData\/values/, ""));
    if (control) blame(control, detail);
    return !control;
  });
}

/**
 * The control of a value, or else the first one of what the value is part of.
 * @param {HTMLElement[]} controls
 * @param {string} pointer
 */
function nearest(controls, pointer) {
  const named = (/** @type {HTMLElement} */ control) => (control.getAttribute("name") ?? "").split("#")[0] ?? "";
  const isUnder = (/** @type {string} */ inner, /** @type {string} */ outer) => inner === outer || inner.startsWith(`${outer}/`);
  const [longest] = controls.filter((control) => isUnder(pointer, named(control)))
    .sort((one, other) => named(other).length - named(one).length);
  return longest ?? controls.find((control) => pointer && isUnder(named(control), pointer));
}

/**
 * A form that nobody has touched is incomplete, not wrong: nothing is said at an empty field. A time may be empty: what
 * is said at it is wrong with the link.
 * @param {HTMLElement} form
 */
export function pardonEmpty(form) {
  for (const control of /** @type {NodeListOf<HTMLInputElement>} */ (form.querySelectorAll('input[name]:not([type="datetime-local"])'))) {
    if (!control.value) blame(control, "");
  }
}

/**
 * What a link gives: `input` and `config` as JSON objects, the rest as text. A value that does not fit its field is said
 * there; what is not even JSON of the right shape comes back as sentences.
 * @param {Parts} parts
 * @param {URLSearchParams} given
 */
export function prefill(parts, given) {
  /** @type {string[]} */
  const left = [];
  // JSON does not carry larger numbers exactly: spelled like this, their fields refuse them.
  const exact = (/** @type {string} */ _, /** @type {unknown} */ value) => (typeof value === "number" && Math.abs(value) > Number.MAX_SAFE_INTEGER ? `about ${value}` : value);
  const objectOf = (/** @type {string} */ name) => {
    try {
      const found = JSON.parse(given.get(name) || "{}", exact);
      if (found?.constructor === Object) return found;
    } catch {
      // Said below.
    }
    left.push(`The link's ${name} is no JSON object: it was left out.`);
    return {};
  };
  const [input, config] = [objectOf("input"), objectOf("config")];
  parts.inputs.forEach((field, at) => {
    const name = parts.names[at] ?? "";
    if (Object.hasOwn(input, name)) field.write(input[name]);
  });
  if (Object.keys(config).length) parts.config.write(config);
  const rest = { description: parts.description, version: parts.version, executionFeeLimit: parts.fee, minValidations: parts.validations };
  for (const [name, field] of Object.entries(rest)) {
    const value = given.get(name);
    if (value) field.write(value);
  }
  return left;
}

/**
 * Keep what was typed while the tab is open: a refusal, a reload or the way back loses nothing.
 * @param {HTMLElement} form
 */
export function keep(form) {
  const values = [...form.querySelectorAll("[name]")].map((each) => [each.getAttribute("name"), /** @type {HTMLInputElement} */ (each).value]);
  sessionStorage.setItem(KEPT, JSON.stringify({ search: location.search, values }));
}

export function forget() {
  sessionStorage.removeItem(KEPT);
}

/**
 * The text typed at this address before; another link begins anew.
 * @param {HTMLElement} form
 */
export function restore(form) {
  try {
    const kept = JSON.parse(sessionStorage.getItem(KEPT) ?? "{}");
    if (kept.search !== location.search) return;
    const controls = kept.values.map((/** @type {[string, string]} */ [name, value]) => {
      const control = /** @type {HTMLInputElement | null} */ (form.querySelector(`[name="${CSS.escape(name)}"]`));
      if (!control || control.value === value) return null;
      control.value = value;
      return control;
    });
    // It bubbles to the fields around each control, which show parts of the form and explain values.
    for (const control of controls) control?.dispatchEvent(new Event("input", { bubbles: true }));
  } catch {
    forget();
  }
}
