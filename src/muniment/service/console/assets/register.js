// Sign what the form of a trigger says, and register it.

import { ask, root } from "./api.js";
import { messageOf } from "./dom.js";
import { forget, wordsOf } from "./form.js";
import { connect, signTypedData } from "./wallet.js";

/** @typedef {import("./proofs/typed-data.js").TypedData} TypedData */

/**
 * @param {TypedData} data
 * @param {() => string} description
 * @param {HTMLElement} status
 */
export async function signNow(data, description, status) {
  status.className = "status";
  status.textContent = "Waiting for the wallet …";
  try {
    const by = await connect();
    await register(description(), data, await signTypedData(by, data), by.address);
  } catch (error) {
    status.className = "status bad";
    status.textContent = messageOf(error);
  }
}

/**
 * @param {string} description
 * @param {TypedData} data
 * @param {string} sig
 * @param {string} signer
 */
export async function register(description, data, sig, signer) {
  const body = { description, typedData: { types: data.types, values: data.message }, sig, signer };
  const answer = await ask("triggers", { method: "POST", body }).catch((error) => {
    throw new Error(wordsOf(error));
  });
  const made = await answer.json();
  if (answer.headers.get("idempotency-status") === "repeated") {
    throw new Error(`Already registered on ${made.createdAt} as ${made.sig.slice(0, 10)}…. Another version makes another trigger.`);
  }
  forget();
  location.assign(new URL(`console/triggers/${made.sig}`, root));
}
