// Deploy a bundle: its CID is computed here, before anything is sent, and compared with the registry's answer.

import { Problem, call, root, upload } from "./api.js";
import { element, fill, find, labelled, messageOf, strange } from "./dom.js";
import { session } from "./identity.js";
import { bundleCid } from "./proofs/content.js";

const NAMES = ["manifest.json", "function.wasm"];
// Of a log-in for one deployment.
const LIFETIME_SECONDS = 600;

const place = find("deploy");
if (place) start(place, place.dataset["profile"] ?? "");

/**
 * @param {HTMLElement} shown
 * @param {string} profile
 */
function start(shown, profile) {
  const files = element("input", { type: "file", multiple: true, accept: ".json,.wasm,application/json,application/wasm" });
  const told = element("div", { class: "told-here", "aria-live": "polite" });
  const drop = element("div", { class: "drop" }, labelled("Choose or drop both files", files, "Together, or one after the other"));
  /** @type {Map<string, File>} */
  const chosen = new Map();
  const take = (/** @type {Iterable<File>} */ given) => {
    for (const file of given) chosen.set(file.name, file);
    void look([...chosen.values()], profile, told);
  };
  drop.addEventListener("dragover", (event) => event.preventDefault());
  drop.addEventListener("drop", (event) => {
    event.preventDefault();
    take(event.dataTransfer?.files ?? []);
  });
  files.addEventListener("change", () => take(files.files ?? []));
  fill(shown, drop, told);
}

/**
 * Read the files, say what they are, and offer to send them.
 * @param {File[]} given
 * @param {string} profile
 * @param {HTMLElement} told
 */
async function look(given, profile, told) {
  try {
    const [manifest, wasm] = NAMES.map((name) => given.find((file) => file.name === name));
    if (!manifest || !wasm) {
      const missing = NAMES.filter((name) => !given.some((file) => file.name === name));
      const other = given.find((file) => !NAMES.includes(file.name));
      return void fill(told, element("p", {}, `Two files are needed: choose ${missing.join(" and ")}${other ? `, not ${other.name}` : ""}.`));
    }
    fill(told, "Computing the CID …");
    const [json, module] = [await bytesOf(manifest), await bytesOf(wasm)];
    const words = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(json));
    for (const name of ["name", "version"]) if (typeof words?.[name] !== "string") throw new Error(`manifest.json has no ${name}: add one, and choose the file again.`);
    const begun = performance.now();
    const cid = await bundleCid(json, module, profile);
    const milliseconds = Math.round(performance.now() - begun);
    const [known] = await call(`functions?cids=${cid}`);
    const facts = element("dl", { class: "facts" },
      element("dt", {}, "Function"), element("dd", {}, strange(words.name), " ", strange(words.version)),
      element("dt", {}, "Size"), element("dd", {}, `${(json.length + module.length).toLocaleString("en")} bytes`),
      element("dt", {}, "CID"), element("dd", { class: "mono", id: "cid" }, cid, ` computed here in ${milliseconds} ms`));
    const send = element("button", { type: "button", class: "first" }, known ? "Deploy again" : "Log in and deploy");
    send.addEventListener("click", () => void deploy([manifest, wasm], cid, told, send));
    fill(told, facts, known ? element("p", {}, "This function is here already: ", link(cid)) : null, send, known ? signWith(cid) : null);
  } catch (error) {
    fill(told, element("p", { class: "bad" }, messageOf(error)));
  }
}

/**
 * @param {File[]} files
 * @param {string} cid
 * @param {HTMLElement} told
 * @param {HTMLButtonElement} send
 */
async function deploy(files, cid, told, send) {
  send.disabled = true;
  const bar = element("progress", { max: 1, value: 0, "aria-label": "Sent" });
  const words = element("p", {}, "Waiting for the wallet …");
  told.append(words, bar);
  try {
    const { logIn } = await import("./session.js");
    const by = session() ?? (await logIn(LIFETIME_SECONDS, (text) => { fill(words, "The wallet shows this text: ", element("span", { class: "signed" }, text)); }));
    const { apiKey } = await call("users/api-key", { token: by.token });
    const form = new FormData();
    for (const file of files) form.append("file", file, file.name);
    words.textContent = "Sending …";
    const made = await upload("functions", form, { "x-api-key": apiKey }, (sent, total) => { bar.value = sent / total; });
    if (made.CID !== cid) throw new Error(`The registry answered with another CID, ${made.CID}: do not sign triggers for it.`);
    fill(told, element("p", { class: "ok" }, "Deployed. The registry computed the same CID: ", link(cid)), signWith(cid));
  } catch (error) {
    bar.remove();
    send.disabled = false;
    words.className = "bad";
    const faults = error instanceof Problem ? error.faults.map((fault) => `${fault.pointer ?? ""} ${fault.detail}`) : [];
    fill(words, messageOf(error), ...faults.filter((fault) => !fault.endsWith(messageOf(error))).map((fault) => element("div", {}, fault)));
  }
}

/** @param {string} cid */
function link(cid) {
  return element("a", { href: new URL(`console/functions/${cid}`, root).href }, cid);
}

/** @param {string} cid */
function signWith(cid) {
  return element("a", { class: "button first", href: new URL(`console/triggers/new?functionCid=${cid}`, root).href }, "Sign a trigger");
}

/** @param {File} file */
async function bytesOf(file) {
  return new Uint8Array(await file.arrayBuffer());
}
