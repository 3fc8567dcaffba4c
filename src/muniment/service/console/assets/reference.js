// The reference: examples with the URL of this registry, an index that is filtered, and requests that the page sends.
//
// What is typed for a credential is in the memory of this page alone: nothing stores it.

import { root } from "./api.js";
import { element, fill, find, messageOf, strange } from "./dom.js";

/** Of an answer, as much as is shown. */
const SHOWN_MAX = 64 * 1024;
const TEXT = /^(text\/|application\/([a-z.-]+\+)?json)/;

/** @typedef {{name: string, place: string, input: HTMLInputElement}} Field for a part of a request */

const url = root.href.replace(/\/$/, "");
/**
 * What was typed for credentials, by the name of the header field.
 * @type {Map<string, string>}
 */
const credentials = new Map();

for (const pre of document.querySelectorAll(".reference pre")) {
  if (pre.textContent.includes("$URL")) pre.textContent = pre.textContent.replaceAll("$URL", url);
  addCopy(pre);
}
for (const details of document.querySelectorAll(".reference details")) {
  const prepare = () => {
    const place = details.querySelector(".try:empty");
    if (place instanceof HTMLElement && details.hasAttribute("open")) offer(place, details);
  };
  details.addEventListener("toggle", prepare);
  prepare();
}
const filter = find("filter");
if (filter instanceof HTMLInputElement) {
  filter.addEventListener("input", () => narrow(filter.value.trim().toLowerCase()));
  filter.addEventListener("keydown", (event) => {
    const first = document.querySelector(".contents a:not([hidden])");
    if (event.key === "Enter" && first instanceof HTMLAnchorElement) first.click();
  });
}

/**
 * @param {Element} pre
 * @param {string | null} [text] that is copied where it is not what is shown
 */
function addCopy(pre, text = null) {
  const place = element("div", { class: "code" });
  pre.replaceWith(place);
  place.append(pre, element("button", { type: "button", class: "copy", "aria-label": "Copy", "data-copy": text }));
}

/**
 * Show what of the index has these letters.
 * @param {string} letters
 */
function narrow(letters) {
  for (const group of document.querySelectorAll(".contents div")) {
    let count = 0;
    for (const link of group.querySelectorAll("a")) {
      link.hidden = !link.textContent.toLowerCase().includes(letters);
      count += link.hidden ? 0 : 1;
    }
    if (group instanceof HTMLElement) group.hidden = !count;
  }
}

/**
 * Fields for the parameters of an operation, and a button that sends the request.
 * @param {HTMLElement} place
 * @param {Element} details of the operation
 */
function offer(place, details) {
  const path = place.dataset["path"] ?? "";
  const headers = (place.dataset["headers"] ?? "").split("\n").filter(Boolean);
  const fields = [...parameters(details), ...headers.map((name) => field(name, "header"))];
  const answer = element("div", { "aria-live": "polite" });
  const form = element("form", { class: "fields" },
    ...fields.map(({ name, place, input }) =>
      element("label", {}, element("span", {}, place === "header" ? `${name}, kept nowhere` : `${name} (${place})`), input)),
    element("button", { class: "first" }, "Send"));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    void send(path, fields, answer);
  });
  fill(place, form, answer);
}

/**
 * The parameters that the page describes, each with a field.
 * @param {Element} details
 * @returns {Field[]}
 */
function parameters(details) {
  const rows = [...(details.querySelector("table.parameters")?.querySelectorAll("tr:has(td)") ?? [])];
  return rows.flatMap((row) => {
    const [name = "", place = ""] = [...row.querySelectorAll("td")].map((each) => each.textContent);
    return place === "path" || place === "query" ? [field(name, place)] : [];
  });
}

/**
 * @param {string} name
 * @param {string} place
 * @returns {Field}
 */
function field(name, place) {
  const isCredential = place === "header";
  const input = element("input", {
    class: isCredential ? "secret" : null, autocomplete: "off", spellcheck: "false", required: place === "path",
  });
  if (isCredential) {
    input.value = credentials.get(name) ?? "";
    input.addEventListener("input", () => credentials.set(name, input.value));
  }
  return { name, place, input };
}

/**
 * @param {string} path with the names of parameters in braces
 * @param {Field[]} fields
 * @param {HTMLElement} answer where it is shown
 */
async function send(path, fields, answer) {
  const target = new URL(path.slice(1).replace(/\{([a-z_]+)\}/gi, (_, name) =>
    (fields.find((each) => each.name === name)?.input.value.trim() ?? "").split("/").map(encodeURIComponent).join("/")), root);
  /** @type {Record<string, string>} */
  const headers = { accept: "application/json, */*;q=0.5" };
  for (const { name, place, input } of fields) {
    const value = input.value.trim();
    if (!value) continue;
    if (place === "query") target.searchParams.append(name, value);
    if (place !== "header") continue;
    const [header = "", scheme] = name.split(": ");
    headers[header.toLowerCase()] = scheme ? `${scheme} ${value}` : value;
  }
  fill(answer, element("p", { class: "faint" }, "Sending …"));
  const began = performance.now();
  try {
    const response = await fetch(target, { headers, credentials: "omit" });
    const took = Math.round(performance.now() - began);
    const body = await beginning(response);
    fill(answer, element("p", {}, element("strong", { class: response.ok ? "ok" : "bad" }, response.status), ` in ${took} ms: `,
      element("a", { href: target.href }, `${target.pathname}${target.search}`)), element("pre", {}, strange(body)));
    const shown = answer.querySelector("pre");
    if (shown) addCopy(shown, body);
  } catch (error) {
    fill(answer, element("p", { class: "bad" }, messageOf(error)));
  }
}

/**
 * The beginning of an answer as a text; of other content its type.
 * @param {Response} response
 */
async function beginning(response) {
  const type = response.headers.get("content-type") ?? "";
  if (!TEXT.test(type) || !response.body) {
    await response.body?.cancel();
    return type ? `(${type}, ${response.headers.get("content-length") ?? "some"} bytes)` : "(no content)";
  }
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (let part = await reader.read(); !part.done; part = await reader.read()) {
    text += part.value;
    if (text.length <= SHOWN_MAX) continue;
    await reader.cancel();
    return `${text.slice(0, SHOWN_MAX)}\n…`;
  }
  return /json/.test(type) ? pretty(text) : text;
}

/** @param {string} text */
function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}
