// Times in words that stay true while a page is open, in UTC or in the reader's zone: the choice stays in this browser.
// What else a page says is of when it was read: an old page says so.

import { element, find } from "./dom.js";

const KEPT_AS = "times";
const MINUTE_MS = 60_000;
const TICK_MS = 5_000;
const READ_AT = new Date();
/** @type {[string, number][]} */
const UNITS = [["day", 86_400_000], ["hour", 3_600_000], ["minute", MINUTE_MS], ["second", 1_000]];
/** Smaller counts are shown in the next smaller unit, as the pages of the registry do. */
const FEW = 2;
const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
const ZONES = new Intl.DateTimeFormat("en", { timeZoneName: "short" });

/**
 * The texts of a time by the name in `data-as`; a time without one says how long ago it is.
 * @type {Record<string, (at: Date) => string>}
 */
const FORMS = {
  ago: (at) => relative(at),
  dated: (at) => `${day(at)}, ${clock(at, 5)} ${zoneOf(at)} (${relative(at)})`,
  second: (at) => `${day(at)}, ${clock(at, 8)}`,
  exact: (at) => exact(at),
  clock: (at) => clock(at, 5),
};

const button = find("zone");
let isLocal = kept() === "local";

button?.addEventListener("click", () => {
  isLocal = !isLocal;
  keep();
  show();
});
setInterval(show, TICK_MS);
// A page that comes back from the history, or was hidden by another one, has old words.
addEventListener("pageshow", show);
document.addEventListener("visibilitychange", show);

function show() {
  const passed = /** @type {HTMLElement[]} */ ([...document.querySelectorAll("[data-until]")])
    .filter((each) => Date.parse(each.dataset["until"] ?? "") <= Date.now());
  for (const each of passed) {
    each.textContent = each.dataset["then"] ?? "";
    each.removeAttribute("data-until");
  }
  if (passed.length || Date.now() - READ_AT.getTime() > MINUTE_MS) sayThatItIsOld();
  for (const time of document.querySelectorAll("time[datetime]")) {
    if (!(time instanceof HTMLTimeElement)) continue;
    const at = new Date(time.dateTime);
    const form = time.dataset["as"] ?? "ago";
    const words = FORMS[form]?.(at) ?? "";
    if (words && words !== time.textContent) time.textContent = words;
    if (time.title) time.title = form === "ago" ? exact(at) : relative(at);
  }
  if (!button) return;
  button.textContent = isLocal ? "Show times in UTC" : "Show local times";
  const words = find("zone-words");
  if (words) words.textContent = isLocal ? `Times are local (${zoneOf(new Date())}).` : "Times are UTC.";
}

/** Say below the page when it was read, and offer to read it again: rows never move under the reader. */
function sayThatItIsOld() {
  if (document.querySelector(".old")) return;
  document.body.append(element("p", { class: "old" }, "This page was read ", element("time", { datetime: READ_AT.toISOString() }), " ",
    element("button", { type: "button", click: () => location.reload() }, "Read it again")));
}

/** @param {Date} at */
function relative(at) {
  const distance = at.getTime() - Date.now();
  for (const [name, length] of UNITS) {
    const count = Math.floor(Math.abs(distance) / length);
    if (count < FEW && !(count && name === "second")) continue;
    const words = `${count.toLocaleString("en")} ${name}${count > 1 ? "s" : ""}`;
    return distance > 0 ? `in ${words}` : `${words} ago`;
  }
  return "now";
}

/**
 * A date whose parts in UTC are those of the chosen zone.
 * @param {Date} at
 */
function shifted(at) {
  return isLocal ? new Date(at.getTime() - at.getTimezoneOffset() * MINUTE_MS) : at;
}

/** @param {Date} at */
function day(at) {
  const date = shifted(at);
  return `${date.getUTCDate()} ${MONTHS[date.getUTCMonth()] ?? ""} ${date.getUTCFullYear()}`;
}

/**
 * @param {Date} at
 * @param {number} length of `19:48:00`
 */
function clock(at, length) {
  return shifted(at).toISOString().slice(11, 11 + length);
}

/** @param {Date} at */
function exact(at) {
  return `${shifted(at).toISOString().slice(0, 19).replace("T", " ")} ${zoneOf(at)}`;
}

/** @param {Date} at */
function zoneOf(at) {
  return isLocal ? ZONES.formatToParts(at).find(({ type }) => type === "timeZoneName")?.value ?? "" : "UTC";
}

/** A browser that keeps nothing shows UTC. */
function kept() {
  try {
    return localStorage.getItem(KEPT_AS);
  } catch {
    return null;
  }
}

function keep() {
  try {
    if (isLocal) localStorage.setItem(KEPT_AS, "local");
    else localStorage.removeItem(KEPT_AS);
  } catch {
    // The choice holds for this page.
  }
}
