// Compose a trigger, read it in words, and sign it. The data that goes to the wallet is hashed here.

import { Problem, call, root } from "./api.js";
import { element, fill, find, messageOf, strange } from "./dom.js";
import { signElsewhere } from "./elsewhere.js";
import { Faulty, checked, text } from "./fields.js";
import { blameFields, bodyOf, fieldsOf, forget, keep, pardonEmpty, prefill, restore } from "./form.js";
import { hashes } from "./proofs/typed-data.js";

/** @typedef {import("./form.js").Parts} Parts */
/** @typedef {import("./form.js").FunctionRecord} FunctionRecord */
/** @typedef {import("./proofs/typed-data.js").TypedData} TypedData */
/** @typedef {{summary: string[], nextRuns: string[], warnings: string[]}} Preview */

const WAIT_MS = 250;
// Refusals of what was signed before.
const TAKEN = ["signature-taken", "trigger-deactivated"];

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
    const isWanted = () => cid === chosen.read();
    side.hidden = true;
    fill(form);
    if (!cid) return;
    try {
      const path = `functions/${encodeURIComponent(cid)}`;
      const [record, manifest] = await Promise.all([call(path), call(`${path}/manifest`)]);
      if (!isWanted()) return;
      chosen.blame?.("");
      compose(form, side, record, manifest, given);
      side.hidden = false;
    } catch (error) {
      if (isWanted()) chosen.blame?.(messageOf(error));
    }
  };
  chosen.node.addEventListener("change", () => {
    // The address names the function: a reload and the way back lead to the same form.
    given.set("functionCid", String(chosen.read()));
    history.replaceState(null, "", `?${given}`);
    void load();
  });
  void load();
}

/**
 * The rest of the form for one function, and the panel beside it.
 * @param {HTMLElement} form
 * @param {HTMLElement} side
 * @param {FunctionRecord} record
 * @param {{inputs?: Record<string, any>}} manifest
 * @param {URLSearchParams} given
 */
function compose(form, side, record, manifest, given) {
  const parts = fieldsOf(record, manifest);
  const left = element("div", {});
  fill(form,
    element("p", {}, element("strong", {}, strange(record.name)), ` ${record.version}: `, strange(record.description)), left,
    parts.description.node, element("h2", {}, "2 Inputs"),
    ...(parts.inputs.length ? parts.inputs.map((field) => field.node) : [element("p", { class: "empty" }, "It takes none.")]),
    element("h2", {}, "3 When"), parts.config.node, element("h2", {}, "4 Limits"), parts.fee.node, parts.validations.node, parts.version.node);
  const refresh = panel(side, parts);
  fill(left, ...prefill(parts, given).map((words) => element("p", { class: "note" }, words)));
  restore(form);
  form.oninput = () => {
    keep(form);
    refresh();
  };
  refresh(0, () => pardonEmpty(form));
}

/**
 * The panel that says what is signed, and signs it. The function that comes back reads the form anew.
 * @param {HTMLElement} side
 * @param {Parts} parts
 */
function panel(side, parts) {
  const told = element("div", { class: "preview", "aria-live": "polite" });
  const status = element("p", { class: "status", "aria-live": "polite" });
  const sign = element("button", { type: "button", class: "first", disabled: true }, "Sign in the wallet");
  /** @type {TypedData | null} */
  let data = null;
  let [timer, last] = [0, 0];
  const send = (/** @type {TypedData} */ signed, /** @type {string} */ signature, /** @type {string} */ signer) =>
    register(signed, String(checked(parts.description)), signature, signer);
  sign.addEventListener("click", () => void (data && signNow(data, send, status)));
  fill(side, element("h2", {}, "What you sign"), told, sign, status, signElsewhere(async () => data, send));
  return (waitMs = WAIT_MS, then = () => {}) => {
    const mine = (last += 1);
    const isWanted = () => mine === last;
    data = null;
    sign.disabled = true;
    clearTimeout(timer);
    timer = window.setTimeout(async () => {
      const found = await look(parts, told, isWanted);
      if (!isWanted()) return;
      data = found;
      sign.disabled = !found;
      then();
    }, waitMs);
  };
}

/**
 * Ask what the form says and how it is signed; null while something is wrong with it.
 * @param {Parts} parts
 * @param {HTMLElement} told
 * @param {() => boolean} isWanted false when the form was changed since
 * @returns {Promise<TypedData | null>}
 */
async function look(parts, told, isWanted) {
  try {
    const asked = { method: "POST", body: bodyOf(parts) };
    const [preview, data] = await Promise.all([call("triggers/preview", asked), call("triggers/sign-params", asked)]);
    if (!isWanted()) return null;
    compare(data, asked.body);
    showPreview(told, preview, data);
    return data;
  } catch (error) {
    if (!isWanted()) return null;
    fill(told, element("p", { class: error instanceof Faulty ? "faint" : "bad" }, wordsOf(error)));
    return null;
  }
}

/**
 * Sentences, next runs, warnings, and the hashes that a wallet or a device shows.
 * @param {HTMLElement} place
 * @param {Preview} preview
 * @param {TypedData} data
 */
function showPreview(place, preview, data) {
  const found = hashes(data);
  fill(place,
    list(preview.summary),
    preview.nextRuns.length ? element("p", {}, element("strong", {}, "Next: "), preview.nextRuns.map(shortTime).join(" · "), " UTC") : null,
    preview.warnings.length ? element("div", { class: "note" }, element("strong", {}, "Mind"), list(preview.warnings)) : null,
    element("details", { open: true }, element("summary", {}, "Hashes, as your wallet or device shows them"),
      element("dl", { class: "facts mono" },
        element("dt", {}, "Domain"), element("dd", { id: "hash-domain" }, found.domain),
        element("dt", {}, "Message"), element("dd", { id: "hash-message" }, found.message),
        element("dt", {}, "Digest"), element("dd", { id: "hash-digest" }, found.digest))));
}

/** @param {string[]} sentences */
function list(sentences) {
  return element("ul", {}, ...sentences.map((each) => element("li", {}, element("bdi", {}, each))));
}

/** @param {string} moment */
function shortTime(moment) {
  return moment.slice(0, 16).replace("T", " ");
}

/**
 * The data to sign comes from the registry: it must say what was typed here, under the name of this registry.
 * @param {TypedData} data
 * @param {Record<string, unknown>} body
 */
function compare(data, body) {
  const domain = { name: `${place?.dataset["protocol"]} Protocol - Registry`, version: "1" };
  /** @type {Record<string, unknown>} */
  const wanted = { ...body, domain, type: "Trigger" };
  /** @type {Record<string, unknown>} */
  const found = { ...data.message, domain: data.domain, type: data.primaryType };
  const member = Object.keys(data.message).find((each) => !Object.hasOwn(body, each))
    ?? Object.keys(wanted).find((each) => plain(found[each]) !== plain(wanted[each]));
  if (member) throw new Error(`The registry wants another ${member} to be signed than this form has. Do not sign.`);
}

/**
 * Values in one spelling: numbers as text, members in order.
 * @param {unknown} value
 */
function plain(value) {
  return JSON.stringify(value, (_, each) => {
    if (typeof each === "number") return String(each);
    if (!each || typeof each !== "object" || Array.isArray(each)) return each;
    return Object.fromEntries(Object.entries(each).sort(([one], [other]) => (one < other ? -1 : 1)));
  });
}

/**
 * @param {TypedData} data
 * @param {(data: TypedData, signature: string, signer: string) => Promise<void>} send
 * @param {HTMLElement} status
 */
async function signNow(data, send, status) {
  status.className = "status";
  status.textContent = "Waiting for the wallet …";
  try {
    const { connect, signTypedData } = await import("./wallet.js");
    const by = await connect();
    await send(data, await signTypedData(by, data), by.address);
  } catch (error) {
    status.className = "status bad";
    status.textContent = messageOf(error);
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
  const made = await call("triggers", { method: "POST", body }).catch((error) => {
    throw new Error(wordsOf(error));
  });
  forget();
  location.assign(new URL(`console/triggers/${made.sig}`, root));
}

/**
 * What a refusal says here; what it says of a field stands there.
 * @param {unknown} error
 */
function wordsOf(error) {
  if (!(error instanceof Problem)) return messageOf(error);
  if (TAKEN.includes(error.code)) return `${error.message} Change a member that is signed, such as the version.`;
  const isSaid = error.faults.length > 0 && !blameFields(error.faults).length;
  return isSaid ? new Faulty().message : error.message;
}
