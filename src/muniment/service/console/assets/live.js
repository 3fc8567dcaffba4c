// Tell of newer rows of a listing. Rows never move under the reader: a button says how many there are.

import { call } from "./api.js";
import { element, fill, find } from "./dom.js";
import { follow } from "./follow.js";

const POLL_MS = 15_000;
/** As many as the path asks for. */
const SHOWN_MAX = 100;

const rows = find("rows");
const place = find("newer");
if (rows && place) tell(rows, place);

/**
 * @param {HTMLElement} rows says where newer rows are, what names one, and which events may add one
 * @param {HTMLElement} place for the button
 */
function tell(rows, place) {
  const { path = "", name = "", types = "" } = rows.dataset;
  const shown = new Set([...rows.querySelectorAll("button.copy")].map((each) => each.getAttribute("data-copy")));
  let told = 0;
  follow(types, async () => {
    const count = (await call(path)).filter((/** @type {any} */ each) => !shown.has(each[name])).length;
    const words = `${count}${count < SHOWN_MAX ? "" : " or more"} new, show`;
    if (count > told) fill(place, element("button", { type: "button", click: () => location.reload() }, words));
    told = count;
    return count >= SHOWN_MAX;
  }, POLL_MS);
}
