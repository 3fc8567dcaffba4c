// On every page: copy buttons, the key that leads to the search box, and the button of the wallet.

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

document.addEventListener("account", () => void showAccount());
showButton();

/**
 * Copy what stands in `data-copy`. A page over plain HTTP has no clipboard: there the text is shown and selected.
 * @param {HTMLButtonElement} button
 */
async function copy(button) {
  const text = button.dataset["copy"] ?? "";
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

function showButton() {
  const place = find("wallet");
  if (place) fill(place, element("button", { type: "button", click: connect }, "Connect", element("span", { class: "word" }, " wallet")));
}

/** The code for wallets is loaded when a reader asks for one: a page that is only read works without it. */
async function connect() {
  const wallet = await import("./wallet.js");
  try {
    await wallet.connect();
  } catch (error) {
    tell(messageOf(error));
  }
}

async function showAccount() {
  const place = find("wallet");
  const wallet = await import("./wallet.js");
  const by = wallet.account();
  if (!place || !by) return showButton();
  const page = new URL(`console/addresses/${by.address}`, new URL(document.documentElement.dataset["root"] ?? "./", document.baseURI));
  fill(place, element("details", { class: "menu" },
    element("summary", { title: by.address }, `${by.address.slice(0, 6)}…${by.address.slice(-4)}`),
    element("div", {},
      element("a", { href: page.href }, "Its page"),
      element("button", { type: "button", click: wallet.disconnect }, "Disconnect"))));
  const mine = find("mine");
  if (mine) mine.textContent = mine.dataset["address"] === by.address ? "mine" : "";
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
