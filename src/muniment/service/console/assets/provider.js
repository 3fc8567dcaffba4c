// Wallets in the browser (EIP-1193), as they announce themselves (EIP-6963), and the one of this tab.

import { element, fill, strange } from "./dom.js";
import { remember, remembered } from "./identity.js";

/** @typedef {{request: (asked: {method: string, params?: unknown[]}) => Promise<any>, on?: (name: string, listener: (given: any) => void) => void}} Provider */
/** @typedef {{uuid: string, name: string, icon: string, rdns: string}} Info */
/** @typedef {{info: Info, provider: Provider}} Offered */
/** @typedef {{address: string, name: string, provider: Provider}} Account */

/** Wallets announce themselves within this time; later ones are still shown. */
const PATIENCE_MS = 300;
const UNAUTHORISED = 4100;
const WORDS = new Map([
  [4001, "The wallet's owner refused."],
  [UNAUTHORISED, "The wallet does not allow this page to ask. Connect it again."],
  [-32002, "The wallet is waiting with an earlier question: open it."],
]);
/** @type {Map<string, Offered>} */
const wallets = new Map();
/** @type {Set<() => void>} */
const watchers = new Set();
/** Wallets whose events are heard. @type {WeakSet<Provider>} */
const heard = new WeakSet();
/** @type {Account | null} */
let connected = null;
/** @type {Promise<unknown>} */
let restoring = Promise.resolve();

/** A wallet's refusal, in a sentence. */
export class WalletError extends Error {}

window.addEventListener("eip6963:announceProvider", (event) => {
  const { info, provider } = /** @type {CustomEvent} */ (event).detail ?? {};
  if (typeof info?.uuid !== "string" || typeof provider?.request !== "function") return;
  wallets.set(info.uuid, { info, provider });
  for (const each of watchers) each();
});
document.addEventListener("account", () => {
  if (!remembered()) connected = null;
});
window.dispatchEvent(new Event("eip6963:requestProvider"));

/**
 * Find the wallet that this tab has connected before, and the account that it gives now. It asks its owner nothing.
 * @returns {Promise<void>}
 */
export function restore() {
  const wanted = remembered();
  if (!wanted) return Promise.resolve();
  restoring = found(wanted.rdns).then(async ({ info, provider }) => {
    const addresses = await request(provider, "eth_accounts", []);
    if (!remembered()) return; // The reader has disconnected it since.
    const known = Array.isArray(addresses) && addresses.some((each) => isSame(each, wanted.address));
    await use({ info, provider }, known ? wanted.address : addresses?.[0]);
  }).catch(() => {});
  return /** @type {Promise<void>} */ (restoring);
}

/** The account of this tab's wallet, as soon as that has answered; null before. */
export function account() {
  return connected;
}

/**
 * The account of this tab's wallet, else of the one that the reader chooses. Throws a `WalletError`.
 * @returns {Promise<Account>}
 */
export async function connect() {
  await Promise.race([restoring, new Promise((resolve) => setTimeout(resolve, PATIENCE_MS))]);
  if (connected) return connected;
  const chosen = await choose();
  const addresses = await request(chosen.provider, "eth_requestAccounts", []);
  const account = await use(chosen, addresses?.[0]);
  if (!account) throw new WalletError("The wallet gave no account.");
  return account;
}

/**
 * Take the account that a wallet gives as that of this tab; without one, the wallet is forgotten.
 * @param {Offered} wallet
 * @param {unknown} given
 */
async function use({ info, provider }, given) {
  const address = await spelled(given);
  const name = String(info.name).slice(0, 60);
  if (address && !heard.has(provider)) {
    heard.add(provider);
    provider.on?.("accountsChanged", (/** @type {unknown} */ next) => {
      if (connected?.provider === provider) void use({ info, provider }, Array.isArray(next) ? next[0] : null);
    });
  }
  const account = connected = address ? { address, name, provider } : null;
  remember(address ? { rdns: String(info.rdns), address, name } : null);
  return account;
}

/**
 * An address with its checksum; null for what is none. The hash for the checksum is loaded for a new address alone.
 * @param {unknown} given
 */
async function spelled(given) {
  const known = remembered()?.address;
  if (known && isSame(given, known)) return known;
  const { addressOf } = await import("./proofs/typed-data.js");
  return addressOf(String(given ?? ""));
}

/**
 * @param {unknown} one
 * @param {string} other
 */
function isSame(one, other) {
  return String(one).toLowerCase() === other.toLowerCase();
}

/**
 * @param {Provider} provider
 * @param {string} method
 * @param {unknown[]} params
 */
export async function request(provider, method, params) {
  try {
    return await provider.request({ method, params });
  } catch (error) {
    const { code, message } = /** @type {{code?: number, message?: string}} */ (error ?? {});
    if (code === UNAUTHORISED && connected?.provider === provider) remember(null);
    throw new WalletError(WORDS.get(code ?? 0) ?? `The wallet failed: ${message ?? "it does not say why"}`);
  }
}

/**
 * The wallet of this name, as soon as it has announced itself.
 * @param {string} rdns
 * @returns {Promise<Offered>}
 */
function found(rdns) {
  return new Promise((resolve) => {
    const look = () => {
      const wallet = offered().find(({ info }) => info.rdns === rdns);
      if (wallet) resolve(wallet);
      return Boolean(wallet);
    };
    if (!look()) watchers.add(look);
  });
}

/**
 * The wallet that the reader chooses in a dialog, which fills as wallets announce themselves.
 * @returns {Promise<Offered>}
 */
function choose() {
  return new Promise((resolve, reject) => {
    const list = element("div", { class: "wallets", "aria-live": "polite" });
    const dialog = element("dialog", { "aria-labelledby": "choose" },
      element("h2", { id: "choose" }, "Choose a wallet"), list,
      element("form", { method: "dialog" }, element("button", {}, "Cancel")));
    const show = () => fill(list, ...offered().map((wallet) => offer(wallet.info, () => {
      resolve(wallet);
      dialog.close();
    })));
    const timer = setTimeout(async () => {
      if (offered().length) return;
      const { withoutWallet } = await import("./without-wallet.js");
      if (!offered().length) fill(list, ...withoutWallet(dialog));
    }, PATIENCE_MS);
    watchers.add(show);
    dialog.addEventListener("close", () => {
      clearTimeout(timer);
      watchers.delete(show);
      dialog.remove();
      reject(new WalletError("No wallet was chosen."));
    });
    document.body.append(dialog);
    show();
    dialog.showModal();
    window.dispatchEvent(new Event("eip6963:requestProvider"));
  });
}

/** @returns {Offered[]} */
function offered() {
  const old = /** @type {{ethereum?: Provider}} */ (/** @type {unknown} */ (window)).ethereum;
  if (wallets.size || !old) return [...wallets.values()];
  return [{ info: { uuid: "", name: "The browser's wallet", icon: "", rdns: "" }, provider: old }];
}

/**
 * @param {Info} info
 * @param {() => void} onChoice
 */
function offer(info, onChoice) {
  const icon = info.icon?.startsWith("data:image/") ? element("img", { src: info.icon, alt: "", width: 24, height: 24 }) : null;
  return element("button", { type: "button", click: onChoice }, icon, strange(String(info.name).slice(0, 60)));
}
