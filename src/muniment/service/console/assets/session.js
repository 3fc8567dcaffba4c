// The log-in of a tab: a token that its address signed for. It is kept while the tab is open; an API key never is.

import { ask, call, root } from "./api.js";
import { keepSession, remembered } from "./identity.js";
import { signInText } from "./proofs/sign-in.js";

/** @typedef {import("./identity.js").Session} Session */

const NONCE = /^0x[0-9a-f]{64}$/;

// The origin's log-ins were in words. It stays when the reader leaves.
const WORDS = "muniment-words";

function keepWords() {
  try {
    localStorage.setItem(WORDS, "given");
  } catch {
    // The browser keeps nothing: the rule for bare nonces below holds nevertheless.
  }
}

/** Throw unless the registry is on this machine and never gave words: a bare nonce could be that of another registry. */
function refuseBareNonce() {
  const fault = "The registry asks for the signature of a bare nonce, which could be that of another registry";
  if (localStorage.getItem(WORDS)) throw new Error(`${fault}, although it gave a text with its name before. Nothing was signed. If that is right, remove the data of this site from the browser.`);
  if (/^(localhost|127(\.\d+){3}|\[::1\])$/.test(location.hostname)) return;
  throw new Error(`${fault}. Nothing was signed. Its operator can set MUNIMENT_PUBLIC_URL=${root.href.replace(/\/$/, "")}.`);
}

/**
 * Log in by a signature of the connected wallet; `onText` is shown the text before the wallet shows it.
 * @param {number} lifetimeSeconds
 * @param {(text: string) => void} [onText]
 * @returns {Promise<Session>}
 */
export async function logIn(lifetimeSeconds, onText) {
  const { connect, signText } = await import("./wallet.js");
  const by = await connect();
  const answer = await ask("users/nonce", { method: "POST", body: { address: by.address } });
  const { nonce, publicUrl } = await answer.json();
  // Any other text might be a consent to something else, such as the end of triggers on another registry.
  if (!NONCE.test(nonce)) throw new Error("The registry wants something else to be signed than a nonce. Nothing was signed.");
  // The nonce is good by the clock of the registry.
  const issuedAt = new Date(answer.headers.get("date") ?? Date.now());
  const message = publicUrl === undefined ? {} : { message: signInText(String(publicUrl), root.href, by.address, nonce, issuedAt) };
  if (message.message) keepWords();
  else refuseBareNonce();
  const text = message.message ?? nonce;
  onText?.(text);
  const signature = await signText(by, text);
  const body = { address: by.address, signature, lifetimeSeconds, ...message };
  const { token } = await call("users/authenticate", { method: "POST", body });
  if (remembered()?.address !== by.address) throw new Error("The wallet has changed to another account meanwhile. Log in again.");
  const made = { address: by.address, token, until: Date.now() + lifetimeSeconds * 1000 };
  keepSession(made);
  return made;
}
