// Tell of newer rows of a listing. Rows never move under the reader: a button says how many there are.

import { ask, root } from "./api.js";
import { element, fill, find } from "./dom.js";

/** The events of the change feed that may add a row to a listing. @type {Record<string, string>} */
const TYPES = { functions: "function.created", triggers: "trigger.created", intents: "intent.created" };
/** What names a row. @type {Record<string, string>} */
const NAMES = { functions: "CID", triggers: "sig", intents: "hash" };
const POLL_MS = 15_000;
const SHOWN_MAX = 100;

const rows = find("rows");
const place = find("newer");
if (rows && place) follow(rows.dataset["kind"] ?? "", rows.dataset["cursor"] ?? "", (count) => {
  const words = count >= SHOWN_MAX ? `${SHOWN_MAX} or more new` : `${count} new`;
  fill(place, element("button", { type: "button", click: () => location.reload() }, `${words}, show`));
});

/**
 * Call `onCount` with the number of rows behind a cursor when there are some. The change feed says when to look; where
 * it is off or breaks, the listing is asked every 15 seconds. A hidden tab does not look.
 * @param {string} kind
 * @param {string} cursor
 * @param {(count: number) => void} onCount
 */
function follow(kind, cursor, onCount) {
  const shown = new Set([...document.querySelectorAll("#rows button.copy")].map((each) => each.getAttribute("data-copy")));
  let due = false;
  const look = async () => {
    due = document.hidden;
    if (due) return;
    const query = new URLSearchParams(rows?.dataset["query"]);
    query.set("sort", "1");
    query.set("limit", String(SHOWN_MAX));
    query.set("cursor", cursor);
    if (kind === "intents") query.set("generation", "all");
    const found = await ask(`${kind}?${query}`).then((response) => response.json()).catch(() => []);
    const count = found.filter((/** @type {any} */ each) => !shown.has(each[NAMES[kind] ?? ""])).length;
    if (count) onCount(count);
  };
  document.addEventListener("visibilitychange", () => due && void look());
  const poll = () => setInterval(look, POLL_MS);
  if (!("EventSource" in window)) return void poll();
  const stream = new EventSource(new URL(`events/stream?types=${TYPES[kind]}`, root));
  let soon = 0;
  const hint = () => {
    clearTimeout(soon);
    soon = window.setTimeout(look, 500);
  };
  stream.addEventListener(TYPES[kind] ?? "message", hint);
  stream.addEventListener("message", hint);
  stream.addEventListener("error", () => {
    if (stream.readyState === EventSource.CLOSED) poll();
  });
}
