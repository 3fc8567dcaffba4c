// The account: log in, the API key, balances, and the profile.

import { ask, call } from "./api.js";
import { element, fill, find, labelled, messageOf } from "./dom.js";
import { logIn, logOut, session } from "./session.js";

// Of a log-in here: long enough for a visit.
const LIFETIME_SECONDS = 3600;

const place = find("account");
if (place) show(place);
/** The log-in that the page tells of. A wallet that only connects changes nothing here, nor what a log-in has said. */
let shownToken = session()?.token;
document.addEventListener("account", () => {
  if (!place || shownToken === session()?.token) return;
  shownToken = session()?.token;
  show(place);
});

/** @param {HTMLElement} shown */
function show(shown) {
  const by = session();
  if (!by) return void showLogIn(shown);
  const [key, balances, profile] = ["API key", "Balances", "Profile"].map((name) => section(name));
  fill(shown,
    element("p", {}, "Logged in as ", element("code", {}, by.address), ` until ${new Date(by.until).toISOString().slice(11, 16)} UTC. `,
      element("button", { type: "button", click: logOut }, "Log out")),
    key ?? null, balances ?? null, profile ?? null);
  if (key) showKey(key, by.token);
  if (balances) void showBalances(balances, by.token);
  if (profile) void showProfile(profile, by.address, by.token);
}

/** @param {HTMLElement} shown */
function showLogIn(shown) {
  const told = element("p", { "aria-live": "polite" });
  const lifetime = Math.min(LIFETIME_SECONDS, Number(shown.dataset["lifetime"]));
  const start = async () => {
    told.className = "";
    told.textContent = "Waiting for the wallet …";
    try {
      await logIn(lifetime, (text) => { fill(told, "The wallet shows this text: ", element("span", { class: "signed" }, text)); });
    } catch (error) {
      told.className = "bad";
      told.textContent = messageOf(error);
    }
  };
  fill(shown, element("p", {}, "The wallet signs a text that is good for one log-in. Nothing is paid, and nothing is sent to a chain."),
    element("button", { type: "button", class: "first", click: () => void start() }, "Log in with a wallet"), told);
}

/** @param {string} name */
function section(name) {
  return element("section", { "aria-label": name }, element("h2", {}, name), element("div", {}, "…"));
}

/**
 * @param {HTMLElement} part
 * @param {...(Node | string | null)} children
 */
function put(part, ...children) {
  fill(/** @type {Element} */ (part.lastElementChild), ...children);
}

/**
 * The key is asked for when its reader wants to see it, and kept nowhere.
 * @param {HTMLElement} part
 * @param {string} token
 */
function showKey(part, token) {
  const told = element("p", { "aria-live": "polite" });
  const grace = element("input", { type: "number", min: 0, max: 90, value: 1 });
  const reveal = (/** @type {any} */ answer) => fill(told, element("span", { class: "id" },
    element("span", {}, answer.apiKey),
    element("button", { type: "button", class: "copy", "data-copy": answer.apiKey, "aria-label": "Copy the API key" })));
  const run = async (/** @type {() => Promise<any>} */ work) => {
    try {
      reveal(await work());
    } catch (error) {
      fill(told, element("span", { class: "bad" }, messageOf(error)));
    }
  };
  const rotate = () => run(() => call("users/api-key/rotate", {
    method: "POST", token, body: { graceSeconds: Math.round(Number(grace.value) * 86_400) },
  }));
  put(part, element("p", {}, "Programs deploy with it. Who has it can deploy as you, and sign nothing."),
    element("button", { type: "button", click: () => void run(() => call("users/api-key", { token })) }, "Show the key"), told,
    element("details", {}, element("summary", {}, "Replace it"),
      labelled("Days for which the old key still works", grace, "0: it ends now"),
      element("button", { type: "button", class: "danger", click: () => void rotate() }, "Replace the key")));
}

/**
 * @param {HTMLElement} part
 * @param {string} token
 */
async function showBalances(part, token) {
  try {
    const response = await ask("users/tokens", { token });
    const rows = await response.json();
    const [partial, unpriced] = [response.headers.get("x-partial"), response.headers.get("x-unpriced")];
    put(part,
      partial ? element("p", { class: "note" }, `Some chains could not be read: ${partial}. Their tokens are missing here.`) : null,
      unpriced ? element("p", { class: "note" }, `Without a known price, so counted as 0: ${unpriced}.`) : null,
      rows.length ? table(rows) : element("p", { class: "empty" }, "No token on the chains that this registry reads."));
  } catch (error) {
    put(part, element("p", { class: "bad" }, messageOf(error)));
  }
}

/** @param {any[]} rows */
function table(rows) {
  const names = ["Token", "Chain", "Balance", "May be spent by the settler"];
  return element("table", { class: "cards", "aria-label": "Balances" },
    element("thead", {}, element("tr", {}, ...names.map((name) => element("th", { scope: "col" }, name)))),
    element("tbody", {}, ...rows.map((row) => element("tr", {},
      ...[tokenOf(row), String(row.chainId), amount(row.balance, row.decimals, row.symbol), amount(row.allowance ?? "0", row.decimals, row.symbol)]
        .map((cell, at) => element("td", { "data-name": names[at] ?? "" }, element("span", {}, cell)))))));
}

/** @param {any} row */
function tokenOf(row) {
  const logo = String(row.logo ?? row.icon ?? "");
  const name = element("bdi", {}, `${row.symbol ?? ""} ${row.name ?? ""}`);
  return element("span", {}, logo.startsWith("data:image/") ? element("img", { src: logo, alt: "", width: 16, height: 16 }) : null, name);
}

/**
 * An amount in units of its token, the raw number as its title.
 * @param {string} raw
 * @param {number} decimals
 * @param {string} symbol
 */
function amount(raw, decimals, symbol) {
  const digits = raw.padStart(decimals + 1, "0");
  const whole = BigInt(digits.slice(0, digits.length - decimals) || "0").toLocaleString("en");
  const rest = decimals ? digits.slice(-decimals).replace(/0+$/, "") : "";
  return element("span", { title: raw }, `${whole}${rest ? `.${rest}` : ""} ${symbol ?? ""}`);
}

/**
 * @param {HTMLElement} part
 * @param {string} address
 * @param {string} token
 */
async function showProfile(part, address, token) {
  const path = `users/${address}/data`;
  const told = element("p", { "aria-live": "polite" });
  try {
    const profile = await call(path, { token });
    const name = element("input", { value: profile.name, maxlength: 100, autocomplete: "name" });
    const use = element("input", { value: profile.intendedUse, maxlength: 255 });
    const keep = async () => {
      try {
        await call(path, { method: "POST", token, body: { name: name.value, intendedUse: use.value } });
        told.textContent = "Kept.";
      } catch (error) {
        told.textContent = messageOf(error);
      }
    };
    put(part, labelled("Name", name), labelled("What you use the registry for", use),
      profile.email ? element("p", { class: "faint" }, `The operator knows your address ${profile.email}.`) : null,
      element("button", { type: "button", click: () => void keep() }, "Keep"), told);
  } catch (error) {
    put(part, element("p", { class: "bad" }, messageOf(error)));
  }
}
