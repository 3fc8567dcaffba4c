// Who reads, in the one place of the header that says so: nobody, a connected wallet, or an address that has logged in.

import { element, fill, find, strange } from "./dom.js";
import { showButton } from "./frame.js";
import { identity, leave, remembered, session } from "./identity.js";

/** Whom the header names: an open menu stays open while that is the same. */
let named = "";

/** Show who reads, and find the wallet of this tab. */
export function begin() {
  show();
  if (remembered()) void import("./provider.js").then(({ restore }) => restore());
}

export function show() {
  const [place, by] = [find("wallet"), identity()];
  const now = JSON.stringify(by);
  if (!place || now === named) return;
  named = now;
  if (by) fill(place, menuOf(by));
  else showButton();
  const until = session()?.until;
  if (until) setTimeout(() => document.dispatchEvent(new Event("account")), until - Date.now() + 1);
  for (const home of document.querySelectorAll(".top nav a[href*='console/account']")) {
    if (home instanceof HTMLAnchorElement) home.search = by ? `?address=${by.address}` : "";
  }
  const mine = find("mine");
  if (mine) mine.textContent = mine.dataset["address"] === by?.address ? "mine" : "";
}

/** @param {{address: string, isLoggedIn: boolean, name: string}} by */
function menuOf({ address, isLoggedIn, name }) {
  const state = isLoggedIn ? "logged in" : "connected";
  return element("details", { class: "menu" },
    element("summary", { title: `${address}, ${state}` },
      element("span", { class: isLoggedIn ? "state active" : "state" }, `${address.slice(0, 6)}…${address.slice(-4)}`),
      element("span", { class: "word" }, ` ${state}`)),
    element("div", {},
      name ? element("span", { class: "faint" }, strange(name)) : null,
      element("a", { href: pageOf(`account?address=${address}`) }, "Your triggers"),
      element("a", { href: pageOf(`addresses/${address}`) }, "Public page"),
      element("button", { type: "button", click: leave }, isLoggedIn ? "Log out" : "Disconnect")));
}

/** @param {string} path of a page of the console */
function pageOf(path) {
  return new URL(`console/${path}`, new URL(document.documentElement.dataset["root"] ?? "./", document.baseURI)).href;
}

/** After connecting, the overview leads to what runs in the wallet's name. */
export async function connect() {
  const wallet = await import("./provider.js");
  const { address } = await wallet.connect();
  if (location.href.split(/[?#]/)[0] === pageOf("").slice(0, -1)) location.assign(pageOf(`account?address=${address}`));
}
