// Whether a record is in the transparency log: the entry is built from the record, and the proof is checked here.

import { Problem, ask, call } from "./api.js";
import { element, fill, find, messageOf } from "./dom.js";
import { checkProof, deactivationEntry, functionEntry, nameOf, signedAt, triggerEntry } from "./proofs/log.js";
import { digest } from "./proofs/typed-data.js";
import { hex } from "./proofs/bytes.js";

const TRIES = 5;
for (const place of [find("logged"), find("logged-end")]) if (place) void show(place);

/** @param {HTMLElement} shown */
async function show(shown) {
  const verdict = element("p", { class: "verdict", "aria-live": "polite" }, "Checking …");
  fill(shown, shown.querySelector("h2"), verdict);
  try {
    verdict.textContent = await prove(shown.dataset["path"] ?? "", shown.dataset["protocol"] ?? "");
    shown.className = "check yes";
  } catch (error) {
    const waits = error instanceof Problem && error.code === "not-logged-yet";
    shown.className = waits ? "check" : "check no";
    verdict.textContent = waits ? "Not yet. That usually takes a few seconds, and ten minutes at most." : `No. ${messageOf(error)}`;
  }
}

/**
 * The proved facts, in words.
 * @param {string} path of the record
 * @param {string} protocol under whose name triggers are signed
 */
async function prove(path, protocol) {
  const record = await call(path);
  const entry = entryOf(record, protocol);
  const { checkpoint, index, vkeys } = await proofOf(path, entry);
  const [, at] = await Promise.all(vkeys.map((/** @type {string} */ each) => signedAt(checkpoint, each)));
  const where = `It is at index ${index.toLocaleString("en")} of ${checkpoint.size.toLocaleString("en")} entries in the log ${checkpoint.origin}`;
  if (at === null) return `Yes, by its hashes. ${where}. This browser has no Ed25519: the log's signature was not checked.`;
  checkOnce(checkpoint.origin, entry, index);
  return `Yes. ${where}, which was signed at ${new Date(1000 * Number(at)).toISOString()}. Hashes and signatures were checked here.`;
}

/**
 * Throw where this browser has seen another entry of the record: each of the two has a proof.
 * @param {string} origin of the log
 * @param {string} entry
 * @param {number} index
 */
function checkOnce(origin, entry, index) {
  const name = `logged ${origin} ${nameOf(entry)}`;
  const before = localStorage.getItem(name);
  if (before !== null && before !== String(index)) {
    throw new Error(`The log has two entries of this record, at the indexes ${before} and ${index}: do not rely on either.`);
  }
  try {
    localStorage.setItem(name, String(index));
  } catch {
    // The storage is full: what it has is still compared.
  }
}

/**
 * @param {any} record
 * @param {string} protocol
 */
function entryOf(record, protocol) {
  if (record.triggerSigs) return deactivationEntry(record);
  if (!record.sig) return functionEntry(record);
  const { functionCid, version, input, config, executionFeeLimit, minValidations, types } = record;
  const domain = { name: `${protocol} Protocol - Registry`, version: "1" };
  const message = { functionCid, version, input, config, executionFeeLimit, minValidations };
  return triggerEntry(record, hex(digest({ domain, primaryType: "Trigger", types, message })), domain.name);
}

/**
 * @param {string} path
 * @param {string} entry
 */
async function proofOf(path, entry) {
  const answer = await answerOf(`${path}/proof`, TRIES);
  const { note: checkpoint, index } = checkProof(entry, answer);
  const { epochs } = await call("log");
  const { vkeys } = epochs.find((/** @type {{origin: string}} */ each) => each.origin === checkpoint.origin) ?? {};
  if (!vkeys) throw new Error("The registry does not name the log of its proof.");
  const kept = localStorage.getItem(`log ${checkpoint.origin}`);
  const keys = vkeys.join(" ");
  if (kept && kept !== keys) throw new Error(`The log has other keys than this browser has seen before: ${kept}`);
  localStorage.setItem(`log ${checkpoint.origin}`, keys);
  return { checkpoint, index, vkeys };
}

/**
 * The proof, as soon as there is one.
 * @param {string} path
 * @param {number} tries
 * @returns {Promise<string>}
 */
async function answerOf(path, tries) {
  try {
    return await (await ask(path)).text();
  } catch (error) {
    if (tries <= 1 || !(error instanceof Problem) || error.code !== "not-logged-yet") throw error;
    await new Promise((resolve) => setTimeout(resolve, 2_000));
    return answerOf(path, tries - 1);
  }
}
