// The account: whose it is, the log-in, balances, the API key, and the profile.

import { ask, call } from "./api.js";
import { element, fill, find, labelled, messageOf, strange } from "./dom.js";
import { identity, leave, session } from "./identity.js";
import { logIn } from "./session.js";

// Of a log-in here: long enough for a visit.
const LIFETIME_SECONDS = 3600;

const place = find("account");
/** Whose account the page shows; empty while it asks. */
const address = place?.dataset["address"] ?? "";
/** The log-in that the page tells of. A wallet that only connects does not ask for the account again. */
let shownToken = "";
/** Who read the page last: the page follows the wallet from one account to the next, and stays when nobody is left. */
let reader = identity()?.address;
/** While a wallet is asked, the page stands still: its answer may be to come. */
let isAsking = false;
document.addEventListener("account", () => {
  if (!isAsking) settle();
});
// The browser may show an earlier page again as it was, after its reader has logged out on another.
window.addEventListener("pageshow", ({ persisted }) => {
  if (persisted) location.reload();
});
if (place && !address && reader) follow(reader);
else if (place) show(place);

function settle() {
  const [before, now] = [reader, identity()?.address];
  reader = now;
  if (now && now !== before && (!address || address === before)) return follow(now);
  if (place) show(place);
}

/** @param {string} to whose account is shown next */
function follow(to) {
  location.replace(`?address=${to}`);
}

/** @param {HTMLElement} shown */
function show(shown) {
  showReader(shown.querySelector(".who") ?? shown);
  const [by, rest] = [session(), find("private")];
  const token = by?.address === address ? by.token : "";
  if (!rest || (token && token === shownToken)) return;
  shownToken = token;
  if (!token) return fill(rest, element("p", { class: "faint" }, "Balances, API key and profile are shown after a log-in."));
  const [balances, key, profile] = ["Balances", "API key", "Profile"].map((name) => section(name));
  fill(rest, balances ?? null, key ?? null, profile ?? null);
  if (balances) void showBalances(balances, token);
  if (key) showKey(key, token);
  if (profile) void showProfile(profile, address, token);
}

/**
 * Who reads, and what that reader can do next.
 * @param {Element} who
 */
function showReader(who) {
  const [by, log] = [identity(), session()];
  if (by && by.address !== address) {
    return fill(who, element("p", {}, `This is not the account that is ${by.isLoggedIn ? "logged in" : "connected"}. `,
      element("a", { href: `?address=${by.address}` }, "Show that one")));
  }
  if (log) {
    return fill(who, element("p", {}, "Logged in as ", element("code", {}, log.address), ` until ${new Date(log.until).toISOString().slice(11, 16)} UTC. `,
      element("button", { type: "button", click: leave }, "Log out")));
  }
  const told = element("p", { "aria-live": "polite" });
  const start = async (/** @type {() => Promise<unknown>} */ work) => {
    told.className = "";
    told.textContent = "Waiting for the wallet …";
    isAsking = true;
    try {
      await work();
      settle();
    } catch (error) {
      told.className = "bad";
      told.textContent = messageOf(error);
    } finally {
      isAsking = false;
    }
  };
  const lifetime = Math.min(LIFETIME_SECONDS, Number(place?.dataset["lifetime"]));
  const enter = () => logIn(lifetime, (text) => { fill(told, "The wallet shows this text: ", element("span", { class: "signed" }, text)); });
  const connect = async () => (await import("./provider.js")).connect();
  fill(who, element("p", { class: "choice" },
    by ? null : element("button", { type: "button", class: "first", click: () => void start(connect) }, "Connect a wallet"),
    element("button", { type: "button", click: () => void start(enter) }, "Log in with a wallet"),
    element("span", { class: "faint" }, by ? "It shows balances, the API key and the profile. The wallet signs a text, and pays nothing."
      : "Connecting shows your triggers, which you can stop. A log-in also shows balances, the API key and the profile. Neither costs anything.")), told);
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
  const name = strange(`${row.symbol ?? ""} ${row.name ?? ""}`);
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
  return element("span", { title: raw }, `${whole}${rest ? `.${rest}` : ""} `, strange(symbol ?? ""));
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
