// Compose a trigger, see what it says, and sign it. What is hashed here is the data that goes to the wallet.

import { Problem, call, root } from "./api.js";
import { configField } from "./config.js";
import { element, fill, find, messageOf } from "./dom.js";
import { signElsewhere } from "./elsewhere.js";
import { Faulty, checked, fieldOf, number, text } from "./fields.js";
import { showPreview } from "./preview.js";

/** @typedef {import("./fields.js").Field} Field */
/** @typedef {import("./proofs/typed-data.js").TypedData} TypedData */

const KEPT = "muniment-wizard";
const WAIT_MS = 250;
const UINT256 = /** @type {[bigint, bigint]} */ ([0n, 2n ** 256n - 1n]);

const place = find("wizard");
if (place) start(place);

/** @param {HTMLElement} shown */
function start(shown) {
  const given = new URLSearchParams(location.search);
  const chosen = text("Function", "/functionCid", String, "The CID of a function that is deployed here", { list: "functions", placeholder: "Qm… or b…" });
  chosen.write(given.get("functionCid") ?? "");
  const form = element("form", { "aria-label": "Trigger", autocomplete: "off" });
  const side = element("aside", { class: "check sign", "aria-label": "What you sign", hidden: true });
  form.addEventListener("submit", (event) => event.preventDefault());
  fill(shown, element("div", { class: "left" }, element("h2", {}, "1 Function"), chosen.node, form), side);
  const load = async () => {
    const cid = String(chosen.read());
    if (!cid) return;
    try {
      const [record, manifest] = await Promise.all([call(`functions/${encodeURIComponent(cid)}`), call(`functions/${encodeURIComponent(cid)}/manifest`)]);
      chosen.blame("");
      compose(form, side, record, manifest, given);
      side.hidden = false;
    } catch (error) {
      chosen.blame(messageOf(error));
    }
  };
  chosen.node.addEventListener("change", () => void load());
  void load();
}

/**
 * The rest of the form for one function, and the panel beside it.
 * @param {HTMLElement} form
 * @param {HTMLElement} side
 * @param {{CID: string, name: string, version: string, description: string}} record
 * @param {{inputs?: Record<string, any>}} manifest
 * @param {URLSearchParams} given
 */
function compose(form, side, record, manifest, given) {
  const parts = fieldsOf(record, manifest);
  fill(form,
    element("p", {}, element("strong", {}, element("bdi", {}, record.name)), ` ${record.version}: `, element("bdi", {}, record.description)),
    parts.description.node, element("h2", {}, "2 Inputs"),
    ...(parts.inputs.length ? parts.inputs.map((field) => field.node) : [element("p", { class: "empty" }, "It takes none.")]),
    element("h2", {}, "3 When"), parts.config.node, element("h2", {}, "4 Limits"), parts.fee.node, parts.validations.node, parts.version.node);
  const told = element("div", { class: "preview", "aria-live": "polite" });
  const status = element("p", { class: "status", "aria-live": "polite" });
  const sign = element("button", { type: "button", class: "first", disabled: true }, "Sign in the wallet");
  /** @type {TypedData | null} */
  let data = null;
  const send = async (/** @type {string} */ signature, /** @type {string} */ signer) => {
    if (data) await register(data, String(checked(parts.description)), signature, signer);
  };
  sign.addEventListener("click", () => void signNow(() => data, send, status));
  fill(side, element("h2", {}, "What you sign"), told, sign, status, signElsewhere(() => data, send));
  const refresh = async () => {
    const found = await look(parts, told);
    data = found;
    sign.disabled = !found;
  };
  const later = delayed(refresh);
  form.oninput = () => {
    data = null;
    sign.disabled = true;
    keep(form, record.CID);
    later();
  };
  prefill(parts, given);
  restore(form, record.CID, given);
  // A form that nobody has touched is incomplete, not wrong.
  void refresh().then(() => form.querySelectorAll(".fault").forEach((each) => { each.textContent = ""; }));
}

/**
 * @param {{CID: string, name: string, version: string}} record
 * @param {{inputs?: Record<string, any>}} manifest
 */
function fieldsOf(record, manifest) {
  const inputs = Object.entries(manifest.inputs ?? {}).map(([name, declared]) => fieldOf(
    name, typeof declared === "string" ? declared : declared.type, typeof declared === "string" ? "" : declared.description ?? "", `/input/${name}`));
  const parts = {
    cid: record.CID, names: Object.keys(manifest.inputs ?? {}), inputs, config: configField(),
    description: text("Description, for lists; it is not signed", "/description", (typed) => {
      if (!typed) throw new Error("1 to 1000 characters");
      return typed;
    }, "", { maxlength: 1000 }),
    version: text("Version of the trigger", "/version", String, "Another version gives another signature"),
    fee: number("Fee limit for each run, 0 for none", "uint256", UINT256, "/executionFeeLimit", "In the smallest unit"),
    validations: number("Validations", "uint8", [1n, 255n], "/minValidations", "How many relayers must agree on a run"),
  };
  parts.description.write(record.name);
  parts.version.write(record.version);
  parts.fee.write("0");
  parts.validations.write("1");
  return parts;
}

/** @typedef {ReturnType<typeof fieldsOf>} Parts */

/**
 * Ask what the form says and how it is signed; null while something is wrong with it.
 * @param {Parts} parts
 * @param {HTMLElement} told
 * @returns {Promise<TypedData | null>}
 */
async function look(parts, told) {
  try {
    checked(parts.description);
    const input = Object.fromEntries(parts.inputs.map((field, at) => [parts.names[at] ?? "", checked(field)]));
    const body = {
      functionCid: parts.cid, version: checked(parts.version), input, config: checked(parts.config),
      executionFeeLimit: checked(parts.fee), minValidations: Number(checked(parts.validations)),
    };
    const asked = { method: "POST", body };
    const [preview, data] = await Promise.all([call("triggers/preview", asked), call("triggers/sign-params", asked)]);
    compare(data.message, body);
    showPreview(told, preview, data);
    return data;
  } catch (error) {
    const words = error instanceof Problem && blameFields(parts, error) ? "Something in the form is wrong; it is said there." : messageOf(error);
    fill(told, element("p", { class: error instanceof Faulty ? "faint" : "bad" }, error instanceof Faulty ? "Fill in the form." : words));
    return null;
  }
}

/**
 * The data to sign comes from the registry: it must say what was typed here.
 * @param {any} message
 * @param {any} body
 */
function compare(message, body) {
  const plain = (/** @type {unknown} */ value) => JSON.stringify(value, (_, each) =>
    typeof each === "number" || typeof each === "boolean" ? String(each)
      : typeof each === "string" && /^0x[0-9a-fA-F]*$/.test(each) ? each.toLowerCase()
        : each && typeof each === "object" && !Array.isArray(each) ? Object.fromEntries(Object.entries(each).sort(([a], [b]) => (a < b ? -1 : 1))) : each);
  for (const name of Object.keys(body)) {
    if (plain(message[name]) !== plain(body[name])) throw new Error(`The registry wants another ${name} to be signed than this form has. Do not sign.`);
  }
}

/**
 * Say at its field what a refusal is about; whether there was one.
 * @param {Parts} parts
 * @param {Problem} problem
 */
function blameFields(parts, problem) {
  const controls = /** @type {HTMLElement[]} */ ([...document.querySelectorAll("#wizard [name]")]);
  let isSaid = false;
  for (const { pointer = "", detail } of problem.faults) {
    const control = controls.filter((each) => !each.closest("[hidden]"))
      .filter((each) => pointer.startsWith((each.getAttribute("name") ?? "").split("#")[0] ?? "-"))
      .sort((a, b) => (b.getAttribute("name") ?? "").length - (a.getAttribute("name") ?? "").length)[0];
    const fault = control && find(`${control.id}-fault`);
    if (fault) {
      fault.textContent = detail;
      isSaid = true;
    }
  }
  return isSaid;
}

/**
 * @param {() => TypedData | null} read
 * @param {(signature: string, signer: string) => Promise<void>} send
 * @param {HTMLElement} status
 */
async function signNow(read, send, status) {
  status.className = "status";
  status.textContent = "Waiting for the wallet …";
  try {
    const { connect, signTypedData } = await import("./wallet.js");
    const by = await connect();
    const data = read();
    if (data) await send(await signTypedData(by, data), by.address);
  } catch (error) {
    status.className = "status bad";
    status.textContent = error instanceof Problem && error.code === "signature-taken"
      ? `${error.message} Change a member that is signed, such as the version.` : messageOf(error);
  }
}

/**
 * @param {TypedData} data
 * @param {string} description
 * @param {string} sig
 * @param {string} signer
 */
async function register(data, description, sig, signer) {
  const body = { description, typedData: { types: data.types, values: data.message }, sig, signer };
  const made = await call("triggers", { method: "POST", body });
  sessionStorage.removeItem(KEPT);
  location.assign(new URL(`console/triggers/${made.sig}`, root));
}

/**
 * What a link gives: `input` and `config` as JSON, the rest as text.
 * @param {Parts} parts
 * @param {URLSearchParams} given
 */
function prefill(parts, given) {
  const json = (/** @type {string} */ name) => {
    try {
      return JSON.parse(given.get(name) ?? "null") ?? {};
    } catch {
      return {};
    }
  };
  const input = json("input");
  parts.inputs.forEach((field, at) => Object.hasOwn(input, parts.names[at] ?? "") && field.write(input[parts.names[at] ?? ""]));
  const config = json("config");
  if (Object.keys(config).length) parts.config.write(config);
  for (const [name, field] of /** @type {[string, Field][]} */ ([["description", parts.description], ["version", parts.version], ["executionFeeLimit", parts.fee], ["minValidations", parts.validations]])) {
    const value = given.get(name);
    if (value) field.write(value);
  }
}

/**
 * Keep what was typed while the tab is open: a refusal, a reload or the way back loses nothing.
 * @param {HTMLElement} form
 * @param {string} cid
 */
function keep(form, cid) {
  const values = [...form.querySelectorAll("[name]")].map((each) => [each.getAttribute("name"), /** @type {HTMLInputElement} */ (each).value]);
  sessionStorage.setItem(KEPT, JSON.stringify({ cid, search: location.search, values }));
}

/**
 * @param {HTMLElement} form
 * @param {string} cid
 * @param {URLSearchParams} given
 */
function restore(form, cid, given) {
  try {
    const kept = JSON.parse(sessionStorage.getItem(KEPT) ?? "{}");
    if (kept.cid !== cid || kept.search !== (given.size ? `?${location.search.slice(1)}` : "")) return;
    for (const [name, value] of kept.values) {
      const control = /** @type {HTMLInputElement | null} */ (form.querySelector(`[name="${CSS.escape(name)}"]`));
      if (control) control.value = value;
    }
    form.querySelector('[name="/config/type"]')?.dispatchEvent(new Event("input", { bubbles: true }));
  } catch {
    sessionStorage.removeItem(KEPT);
  }
}

/** @param {() => void} work */
function delayed(work) {
  let timer = 0;
  return () => {
    clearTimeout(timer);
    timer = window.setTimeout(work, WAIT_MS);
  };
}
