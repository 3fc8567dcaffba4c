// Wallets in the browser (EIP-1193), as they announce themselves (EIP-6963), and what they sign.

import { element, fill, messageOf } from "./dom.js";
import { concat, hex, utf8 } from "./proofs/bytes.js";
import { keccak256 } from "./proofs/crypto.js";
import { DOMAIN_TYPES, addressOf, digest, signerOf, structHash, textDigest } from "./proofs/typed-data.js";

/** @typedef {{request: (asked: {method: string, params?: unknown[]}) => Promise<any>, on?: (name: string, listener: (given: any) => void) => void}} Provider */
/** @typedef {{uuid: string, name: string, icon: string, rdns: string}} Info */
/** @typedef {{address: string, name: string, provider: Provider}} Account */
/** @typedef {import("./proofs/typed-data.js").TypedData} TypedData */

const SIGNATURE_LENGTH = 132;
const WORDS = new Map([
  [4001, "The wallet's owner refused."],
  [4100, "The wallet does not allow this page to ask. Connect it again."],
  [-32002, "The wallet is waiting with an earlier question: open it."],
]);
/** @type {Map<string, {info: Info, provider: Provider}>} */
const wallets = new Map();
/** @type {Set<() => void>} */
const watchers = new Set();
/** @type {Account | null} */
let connected = null;

/** A wallet's refusal, in a sentence. */
export class WalletError extends Error {}

window.addEventListener("eip6963:announceProvider", (event) => {
  const { info, provider } = /** @type {CustomEvent} */ (event).detail ?? {};
  if (typeof info?.uuid !== "string" || typeof provider?.request !== "function") return;
  wallets.set(info.uuid, { info, provider });
  for (const each of watchers) each();
});
window.dispatchEvent(new Event("eip6963:requestProvider"));

/** The account that was connected in this page, if any. */
export function account() {
  return connected;
}

export function disconnect() {
  connected = null;
  document.dispatchEvent(new Event("account"));
}

/**
 * The account of the wallet that the reader chooses. Throws a `WalletError`.
 * @returns {Promise<Account>}
 */
export async function connect() {
  if (connected) return connected;
  const { name, provider } = await choose();
  const addresses = await request(provider, "eth_requestAccounts", []);
  const address = addressOf(String(addresses?.[0] ?? ""));
  if (!address) throw new WalletError("The wallet gave no account.");
  connected = { address, name, provider };
  provider.on?.("accountsChanged", (/** @type {unknown} */ given) => {
    const next = Array.isArray(given) ? addressOf(String(given[0] ?? "")) : null;
    connected = next ? { address: next, name, provider } : null;
    document.dispatchEvent(new Event("account"));
  });
  document.dispatchEvent(new Event("account"));
  return connected;
}

/**
 * A signature over a text (EIP-191). Throws a `WalletError`.
 * @param {Account} by
 * @param {string} text
 */
export async function signText(by, text) {
  const signature = await request(by.provider, "personal_sign", [hex(utf8(text)), by.address]);
  const signer = recovered(textDigest(text), signature);
  if (signer !== by.address) throw new WalletError(otherSigner(by.address, signer));
  return signature;
}

/**
 * A signature over typed data (EIP-712), recovered and compared here. Throws a `WalletError`.
 * @param {Account} by
 * @param {TypedData} data
 */
export async function signTypedData(by, data) {
  // Without its type, wallets hash an empty domain.
  const types = { ...data.types, EIP712Domain: DOMAIN_TYPES };
  const signature = await request(by.provider, "eth_signTypedData_v4", [by.address, JSON.stringify({ ...data, types })]);
  const signer = recovered(digest(data), signature);
  if (signer === by.address) return signature;
  if (recovered(emptyDomainDigest(data), signature) === by.address) {
    throw new WalletError("This wallet signed without the domain. Update it, or sign elsewhere. Nothing was sent.");
  }
  throw new WalletError(otherSigner(by.address, signer));
}

/** @param {TypedData} data */
function emptyDomainDigest(data) {
  const empty = structHash("EIP712Domain", { EIP712Domain: [] }, {});
  return keccak256(concat([Uint8Array.of(0x19, 0x01), empty, structHash(data.primaryType, data.types, data.message)]));
}

/**
 * @param {string} wanted
 * @param {string} found
 */
function otherSigner(wanted, found) {
  return `The signature is by ${found}, not by ${wanted}. Nothing was sent. Choose that account in the wallet.`;
}

/**
 * @param {Uint8Array} hash
 * @param {unknown} signature
 */
function recovered(hash, signature) {
  if (typeof signature === "string" && signature.length > SIGNATURE_LENGTH) {
    throw new WalletError("The wallet is a contract: it cannot sign here. Its signature has more than 65 bytes.");
  }
  try {
    return signerOf(hash, String(signature));
  } catch (error) {
    throw new WalletError(`The wallet gave no usable signature: ${messageOf(error)}.`);
  }
}

/**
 * @param {Provider} provider
 * @param {string} method
 * @param {unknown[]} params
 */
async function request(provider, method, params) {
  try {
    return await provider.request({ method, params });
  } catch (error) {
    const { code, message } = /** @type {{code?: number, message?: string}} */ (error ?? {});
    throw new WalletError(WORDS.get(code ?? 0) ?? `The wallet failed: ${message ?? "it does not say why"}`);
  }
}

/**
 * The wallet that the reader chooses in a dialog, which fills as wallets announce themselves.
 * @returns {Promise<{name: string, provider: Provider}>}
 */
function choose() {
  return new Promise((resolve, reject) => {
    const list = element("div", { class: "wallets" });
    const dialog = element("dialog", { "aria-labelledby": "choose" },
      element("h2", { id: "choose" }, "Choose a wallet"), list,
      element("form", { method: "dialog" }, element("button", {}, "Cancel")));
    const show = () => fill(list, ...offered().map(({ info, provider }) => offer(info, () => {
      resolve({ name: info.name, provider });
      dialog.close();
    })));
    watchers.add(show);
    dialog.addEventListener("close", () => {
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

/** @returns {{info: Info, provider: Provider}[]} */
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
  return element("button", { type: "button", click: onChoice }, icon, String(info.name).slice(0, 60));
}
