// Compose a trigger, read it in words, and sign it. The data that goes to the wallet is hashed here.

import { call } from "./api.js";
import { element, fill, find, messageOf, strange } from "./dom.js";
import { Faulty, checked } from "./fields.js";
import { bodyOf, faults, fieldsOf, keep, pardonEmpty, prefill, restore, wordsOf } from "./form.js";
import { hashes } from "./proofs/typed-data.js";

/** @typedef {import("./form.js").Parts} Parts */
/** @typedef {import("./form.js").Chosen} Chosen */
/** @typedef {import("./proofs/typed-data.js").TypedData} TypedData */
/** @typedef {{summary: string[], nextRuns: string[], warnings: string[]}} Preview */

const WAIT_MS = 250;

const place = find("wizard");
if (place) void start(place);

/**
 * The form for the function that the page names, and the panel beside it.
 * @param {HTMLElement} shown
 */
async function start(shown) {
  const { cid = "", name = "", version = "" } = shown.dataset;
  const form = element("form", { "aria-label": "Trigger", autocomplete: "off" });
  const side = element("aside", { class: "check sign", "aria-label": "What you sign", hidden: true });
  form.addEventListener("submit", (event) => event.preventDefault());
  shown.querySelector(".without")?.remove();
  shown.firstElementChild?.append(form);
  shown.append(side);
  try {
    compose(form, side, { cid, name, version }, await call(`functions/${cid}/manifest`));
    side.hidden = false;
  } catch (error) {
    fill(form, element("p", { class: "bad" }, messageOf(error)));
  }
}

/**
 * @param {HTMLElement} form
 * @param {HTMLElement} side
 * @param {Chosen} chosen
 * @param {{inputs?: Record<string, any>}} manifest
 */
function compose(form, side, chosen, manifest) {
  const parts = fieldsOf(chosen, manifest);
  const left = element("div", {});
  fill(form, left, element("h2", {}, "2 Inputs"),
    ...(parts.inputs.length ? parts.inputs.map((field) => field.node) : [element("p", { class: "empty" }, "It takes none.")]),
    element("h2", {}, "3 When"), parts.config.node, element("h2", {}, "4 Limits"), parts.fee.node, parts.validations.node,
    parts.version.node, parts.description.node);
  const refresh = panel(side, parts);
  fill(left, ...prefill(parts, new URLSearchParams(location.search)).map((words) => element("p", { class: "note" }, words)));
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
  const description = () => String(checked(parts.description));
  sign.addEventListener("click", async () => {
    const wanted = data;
    const { signNow } = await import("./register.js");
    if (wanted) void signNow(wanted, description, status);
  });
  const elsewhere = element("details", { class: "elsewhere" }, element("summary", {}, "Sign elsewhere"));
  elsewhere.addEventListener("toggle", async () => {
    const [{ fillElsewhere }, { register }] = await Promise.all([import("./elsewhere.js"), import("./register.js")]);
    fillElsewhere(elsewhere, async () => data, (...signed) => register(description(), ...signed));
  }, { once: true });
  fill(side, element("h2", {}, "What you sign"), told, sign, status, elsewhere);
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
    showPreview(told, parts, preview, data);
    return data;
  } catch (error) {
    if (!isWanted()) return null;
    const words = wordsOf(error);
    const isSaid = words === new Faulty().message;
    fill(told, element("p", { class: isSaid ? "" : "bad" }, words), isSaid && faults());
    return null;
  }
}

/**
 * Sentences, next runs, warnings, and the hashes that a wallet or a device shows.
 * @param {HTMLElement} shown
 * @param {Parts} parts
 * @param {Preview} preview
 * @param {TypedData} data
 */
function showPreview(shown, { chosen: { cid, name, version } }, preview, data) {
  const found = hashes(data);
  // A run may be later than its intents are good, as far as the registry has seen some.
  const { life, good = "" } = place?.dataset ?? {};
  const by = /** @type {{delta: string}} */ (data.message["config"]).delta;
  const unit = [1, 60, 3600, 86400, 604800]["smhdw".indexOf(by.slice(-1))] ?? 0;
  if (life && parseInt(by) * unit > Number(life)) preview.warnings.push(good);
  fill(shown,
    element("p", {}, "The function ", element("strong", {}, strange(name)), ` ${version}, `, element("span", { class: "id whole" }, cid)),
    list(preview.summary.map((each) => each.replace(`Function ${cid} may`, "It may"))),
    preview.nextRuns.length ? element("div", {}, element("strong", {}, "Next runs"), list(preview.nextRuns.map(momentIn))) : null,
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

/**
 * A time in UTC, and where the reader's clock differs, by that clock.
 * @param {string} moment
 */
function momentIn(moment) {
  const time = new Date(moment);
  const written = (/** @type {string} */ timeZone) => time.toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "short", timeZone });
  const here = Intl.DateTimeFormat().resolvedOptions().timeZone;
  return `${written("UTC")} UTC${time.getTimezoneOffset() ? ` (${written(here)} in ${here})` : ""}`;
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
