// The triggers of an owner: one, several or all of them are stopped by one signature.

import { find, messageOf } from "./dom.js";

/** @typedef {import("./ending.js").Owned} Owned */

const owner = find("account")?.dataset["address"] ?? "";
const rows = /** @type {HTMLElement[]} */ ([...document.querySelectorAll(".owned li")]);
const boxes = rows.map((row) => /** @type {HTMLInputElement} */ (row.querySelector("input")));
const all = /** @type {HTMLInputElement | null} */ (find("all"));
const stop = /** @type {HTMLButtonElement | null} */ (find("stop"));
const told = find("stop-told");
if (all && stop) offer(all, stop);

/**
 * @param {HTMLInputElement} all
 * @param {HTMLButtonElement} stop
 */
function offer(all, stop) {
  const chosen = () => rows.filter((_, at) => boxes[at]?.checked);
  const count = () => {
    const number = chosen().length;
    stop.disabled = number === 0;
    stop.textContent = number ? `Stop ${number} chosen` : "Stop the chosen";
    all.checked = number === rows.length;
    all.indeterminate = number > 0 && number < rows.length;
  };
  all.addEventListener("change", () => {
    for (const box of boxes) box.checked = all.checked;
    count();
  });
  for (const box of boxes) box.addEventListener("change", count);
  for (const row of rows) row.querySelector("button.danger")?.addEventListener("click", () => void confirm([row]));
  stop.addEventListener("click", () => void confirm(chosen()));
  count();
}

/** @param {HTMLElement[]} ending */
async function confirm(ending) {
  try {
    const { confirmEnd } = await import("./ending.js");
    confirmEnd(ending.map(read), owner, () => location.reload());
  } catch (error) {
    if (told) told.textContent = messageOf(error);
  }
}

/**
 * @param {HTMLElement} row
 * @returns {Owned}
 */
function read(row) {
  const { sig = "", protocol = "" } = row.dataset;
  const words = [row.querySelector("a"), row.querySelector(".does"), row.querySelector(".what > .faint")].map((each) => each?.textContent ?? "").join(" ");
  return { sig, protocol, words };
}
