// Whether a record is in the transparency log: the entry is built from the record, and the proof is checked here.

import { ask, call } from "./api.js";
import { element, fill, find, messageOf, settle } from "./dom.js";
import { checkProof, deactivationEntry, functionEntry, nameOf, signedAt, triggerEntry } from "./proofs/log.js";
import { digest } from "./proofs/typed-data.js";
import { hex } from "./proofs/bytes.js";

const TRIES = 5;
const WAIT_MS = 2_000;
for (const place of [find("logged"), find("logged-end")]) if (place) void show(place);

/** @param {HTMLElement} shown */
async function show(shown) {
  const verdict = element("p", { class: "verdict", "aria-live": "polite" }, "Checking …");
  fill(shown, shown.querySelector("h2"), verdict);
  try {
    const words = await prove(shown.dataset["path"] ?? "", shown.dataset["protocol"] ?? "");
    settle(shown, words ? "yes" : "", words ? "has it" : "not yet");
    verdict.textContent = words ?? "Not yet. That usually takes a few seconds, and ten minutes at most.";
  } catch (error) {
    settle(shown, "no", "not proved");
    verdict.textContent = `No. ${messageOf(error)}`;
  }
}

/**
 * The proved facts, in words; null before the log has the record.
 * @param {string} path of the record
 * @param {string} protocol under whose name triggers are signed
 */
async function prove(path, protocol) {
  const record = await call(path);
  const entry = entryOf(record, protocol);
  const answer = await answerOf(`console/${path}/proof`, TRIES);
  if (!answer) return null;
  const { checkpoint, index, vkeys } = await proofOf(answer, entry);
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
 * @param {string} answer of the registry
 * @param {string} entry
 */
async function proofOf(answer, entry) {
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
 * The proof, as soon as there is one; empty after so many looks without one.
 * @param {string} path which answers 204 while there is none: a 404 would be an error of the page in the browser's log
 * @param {number} tries
 * @returns {Promise<string>}
 */
async function answerOf(path, tries) {
  const answer = await (await ask(path)).text();
  if (answer || tries <= 1) return answer;
  await new Promise((resolve) => setTimeout(resolve, WAIT_MS));
  return answerOf(path, tries - 1);
}
