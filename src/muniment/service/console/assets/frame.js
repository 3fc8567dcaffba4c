// On every page: copy buttons, the key that leads to the search box, and who reads.

import { element, fill, find, messageOf } from "./dom.js";

document.addEventListener("click", (event) => {
  const button = event.target instanceof Element ? event.target.closest("button.copy") : null;
  if (button instanceof HTMLButtonElement) void copy(button);
});

document.addEventListener("keydown", (event) => {
  const typing = event.target instanceof Element && event.target.closest("input, textarea, select, [contenteditable]");
  if (event.key !== "/" || typing || event.ctrlKey || event.metaKey || event.altKey) return;
  const box = document.querySelector(".find input");
  if (box instanceof HTMLInputElement) {
    event.preventDefault();
    box.focus();
  }
});

document.addEventListener("account", () => void import("./reader.js").then(({ show }) => show()));
if (isKnown()) void import("./reader.js").then(({ begin }) => begin());
else showButton();

/**
 * Copy what stands in `data-copy`, or else before the button. A page over plain HTTP has no clipboard: there the text
 * is shown and selected.
 * @param {HTMLButtonElement} button
 */
async function copy(button) {
  const text = button.dataset["copy"] ?? button.previousElementSibling?.textContent ?? "";
  if (navigator.clipboard) {
    await navigator.clipboard.writeText(text);
    button.classList.add("copied");
    setTimeout(() => button.classList.remove("copied"), 1200);
    return;
  }
  const shown = button.previousElementSibling;
  if (shown === null) return;
  shown.textContent = text;
  getSelection()?.selectAllChildren(shown);
}

/** The button for a reader who has not said who reads. */
export function showButton() {
  const place = find("wallet");
  if (place) fill(place, element("button", { type: "button", click: () => void connect() }, "Connect", element("span", { class: "word" }, " wallet")));
}

/** The code for wallets is loaded when a reader asks for one: a page that is only read works without it. */
async function connect() {
  try {
    await (await import("./reader.js")).connect();
  } catch (error) {
    tell(messageOf(error));
  }
}

/** Whether this tab has a wallet or a log-in. */
function isKnown() {
  try {
    return Object.keys(sessionStorage).some((name) => /^muniment-(wallet|session) /.test(name));
  } catch {
    return false; // The browser keeps nothing.
  }
}

/**
 * Say something that no place of the page is for.
 * @param {string} words
 */
function tell(words) {
  document.querySelector(".told")?.remove();
  const told = element("p", { class: "told", role: "status" }, words);
  document.body.append(told);
  setTimeout(() => told.remove(), 8000);
}

// A command or an example names the registry as it is reached from here.
for (const place of document.querySelectorAll(".here")) {
  const here = new URL(document.documentElement.dataset["root"] ?? "./", document.baseURI);
  place.textContent = here.href.replace(/\/$/, "");
}
