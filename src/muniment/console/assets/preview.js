// What a trigger says before it is signed: sentences, next runs, warnings, and the hashes that a wallet shows.

import { element, fill } from "./dom.js";
import { hashes } from "./proofs/typed-data.js";

/** @typedef {import("./proofs/typed-data.js").TypedData} TypedData */
/** @typedef {{summary: string[], nextRuns: string[], warnings: string[]}} Preview */

/**
 * @param {HTMLElement} place
 * @param {Preview} preview
 * @param {TypedData} data
 */
export function showPreview(place, preview, data) {
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
