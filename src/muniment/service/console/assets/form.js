// The form of a trigger: its fields for one function, what they say together, and what the tab keeps of it.

import { Problem } from "./api.js";
import { configField } from "./config.js";
import { blame, element, find, messageOf } from "./dom.js";
import { Faulty, checkedAll, dollars, fieldOf, number, orNone, text } from "./fields.js";

/** @typedef {import("./fields.js").Field} Field */
/** @typedef {import("./api.js").Fault} Fault */
/** @typedef {{cid: string, name: string, version: string}} Chosen */
/** @typedef {ReturnType<typeof fieldsOf>} Parts */

const KEPT = "muniment-wizard";
// Refusals of what was signed before.
const TAKEN = ["signature-taken", "trigger-deactivated"];
const ONE_DOLLAR = (10n ** 18n).toString();
const DESCRIPTION_LENGTH_MAX = 1000;

/**
 * @param {Chosen} chosen
 * @param {{inputs?: Record<string, any>}} manifest
 */
export function fieldsOf(chosen, manifest) {
  const declared = Object.entries(manifest.inputs ?? {});
  const inputs = declared.map(([name, each]) => fieldOf(name, each.type ?? each, each.description ?? "", `/input/${name}`));
  const parts = {
    chosen, names: declared.map(([name]) => name), inputs, config: configField(),
    description: text("Description, for lists; it is not signed", "/description", (typed) => {
      if (!typed || typed.length > DESCRIPTION_LENGTH_MAX) throw new Error("1 to 1000 characters");
      return typed;
    }),
    version: text("Version of the trigger", "/version", String, "Another version gives another signature"),
    fee: orNone("Fee limit for each run", "at most", "no limit", dollars("US dollars", "/executionFeeLimit"), "0"),
    validations: number("Validations", "uint8", [1n, 255n], "/minValidations", "How many relayers must agree on a run"),
  };
  parts.description.write(chosen.name);
  parts.version.write(chosen.version);
  parts.fee.write(ONE_DOLLAR);
  parts.validations.write("1");
  return parts;
}

/**
 * The form as `/triggers/sign-params` takes it.
 * @param {Parts} parts
 */
export function bodyOf(parts) {
  const { chosen, names, inputs, config, description, version, fee, validations } = parts;
  const input = { ...config, read: () => checkedAll(Object.fromEntries(inputs.map((field, at) => [names[at], field]))) };
  const found = checkedAll({ description, version, input, config, executionFeeLimit: fee, minValidations: validations });
  delete found["description"];
  return { ...found, functionCid: chosen.cid, minValidations: Number(found["minValidations"]) };
}

/**
 * What the form shows of these.
 * @param {string} selector
 */
function controlsOf(selector) {
  return /** @type {HTMLElement[]} */ ([...document.querySelectorAll(`#wizard ${selector}`)]).filter((each) => !each.closest("[hidden]"));
}

/**
 * Say at its field what a refusal is about; the faults for which there is no field come back.
 * @param {Fault[]} faults
 */
function blameFields(faults) {
  const controls = controlsOf("[name]");
  return faults.filter(({ pointer = "", detail }) => {
    // The refusal of a signed trigger names its values by a prefix, that of a preview without it.
    const control = nearest(controls, pointer.replace(/^\/typedData\/values/, ""));
    if (control) blame(control, detail);
    return !control;
  });
}

/** What is missing or wrong, each with a link to its field. */
export function faults() {
  const outer = [...document.querySelectorAll("#wizard fieldset")];
  return element("ul", { class: "faults" }, ...controlsOf('[aria-invalid="true"]').map((each) => {
    const group = outer.find((set) => set.contains(each))?.querySelector("legend")?.textContent;
    const label = each.parentElement?.querySelector("label")?.textContent ?? "";
    return element("li", {}, element("a", { href: `#${each.id}` }, group ? `${group}: ${label}` : label), `: ${find(`${each.id}-fault`)?.textContent}`);
  }));
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
  const empty = 'input[name]:not([type="datetime-local"]), select[name$="#known"]';
  for (const control of /** @type {NodeListOf<HTMLInputElement>} */ (form.querySelectorAll(empty))) {
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
  const values = [...form.querySelectorAll('[name]:not([name$="#known"])')].map((each) => [each.getAttribute("name"), /** @type {HTMLInputElement} */ (each).value]);
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

/**
 * What a refusal says here; what it says of a field stands there.
 * @param {unknown} error
 */
export function wordsOf(error) {
  if (!(error instanceof Problem)) return messageOf(error);
  if (TAKEN.includes(error.code)) return `${error.message} Change a member that is signed, such as the version.`;
  const isSaid = error.faults.length > 0 && !blameFields(error.faults).length;
  return isSaid ? new Faulty().message : error.message;
}
