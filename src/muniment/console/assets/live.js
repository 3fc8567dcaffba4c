// Tell of newer rows of a listing. Rows never move under the reader: a button says how many there are.

import { call } from "./api.js";
import { element, fill, find } from "./dom.js";
import { follow } from "./follow.js";

/** The events of the change feed that may add a row to a listing. @type {Record<string, string>} */
const TYPES = { functions: "function.created", triggers: "trigger.created", intents: "intent.created" };
/** What names a row. @type {Record<string, string>} */
const NAMES = { functions: "CID", triggers: "sig", intents: "hash" };
const POLL_MS = 15_000;
const SHOWN_MAX = 100;

const rows = find("rows");
const place = find("newer");
if (rows && place) tell(rows, place);

/**
 * @param {HTMLElement} rows says what is listed, by which filters, and from where newer rows come
 * @param {HTMLElement} place for the button
 */
function tell(rows, place) {
  const kind = rows.dataset["kind"] ?? "";
  const query = new URLSearchParams(rows.dataset["query"]);
  query.set("sort", "1");
  query.set("limit", String(SHOWN_MAX));
  query.set("cursor", rows.dataset["cursor"] ?? "");
  if (kind === "intents") query.set("generation", "all");
  const shown = new Set([...rows.querySelectorAll("button.copy")].map((each) => each.getAttribute("data-copy")));
  let told = 0;
  follow(rows.dataset["feed"] === "off" ? "" : TYPES[kind] ?? "", async () => {
    const found = await call(`${kind}?${query}`);
    const count = found.filter((/** @type {any} */ each) => !shown.has(each[NAMES[kind] ?? ""])).length;
    const words = count >= SHOWN_MAX ? `${SHOWN_MAX} or more new, show` : `${count} new, show`;
    if (count > told) fill(place, element("button", { type: "button", click: () => location.reload() }, words));
    told = count;
    return count >= SHOWN_MAX;
  }, POLL_MS);
}
