// The end of triggers: what it means, the consent to sign, and its way to the registry.

import { call } from "./api.js";
import { element, fill, messageOf, save, strange } from "./dom.js";
import { signElsewhere } from "./elsewhere.js";
import { hashes } from "./proofs/typed-data.js";

/** @typedef {import("./proofs/typed-data.js").TypedData} TypedData */
/** @typedef {{sig: string, protocol: string, words: string}} Owned */

const DEACTIVATE = { Deactivate: [{ name: "triggerSigs", type: "string[]" }] };

/**
 * Say in a dialog what stops, and have its end signed.
 * @param {Owned[]} triggers up to a hundred, of one owner
 * @param {string} owner
 * @param {() => void} onClosed after they have ended
 */
export function confirmEnd(triggers, owner, onClosed) {
  const count = triggers.length === 1 ? "this trigger" : `these ${triggers.length} triggers`;
  const told = element("p", { "aria-live": "polite" });
  const sign = element("button", { type: "button", class: "danger" }, "Sign the end in the wallet");
  const dialog = element("dialog", { class: "ending", "aria-labelledby": "ending" });
  let hasEnded = false;
  const send = async (/** @type {TypedData} */ _, /** @type {string} */ signature) => {
    await sendEnd(triggers, signature);
    hasEnded = true;
    fill(dialog, ...ended(triggers.length, signature));
  };
  sign.addEventListener("click", async () => {
    told.className = "";
    told.textContent = "Waiting for the wallet …";
    try {
      const { connect, signTypedData } = await import("./wallet.js");
      const by = await connect();
      if (by.address !== owner) throw new Error(`The wallet's account is ${by.address}. Only ${owner} can end ${count}: choose that account in the wallet.`);
      const data = await endOf(triggers);
      await send(data, await signTypedData(by, data));
    } catch (error) {
      told.className = "bad";
      told.textContent = messageOf(error);
    }
  });
  fill(dialog, element("h2", { id: "ending" }, `Stop ${count} for ever?`),
    element("ul", { class: "ends", tabindex: 0, "aria-label": "What stops" }, ...triggers.map(({ words }) => element("li", {}, strange(words)))),
    element("p", {}, "Nothing runs in their name any more, and the same consent can never be registered again: to go on later, sign a new trigger. "
      + "Intents that are recorded already may still be executed until their deadline."),
    element("div", { class: "choice" }, element("button", { type: "button", autofocus: true, click: () => dialog.close() }, "Cancel"), sign),
    told, signElsewhere(() => endOf(triggers), send, owner));
  dialog.addEventListener("close", () => {
    dialog.remove();
    if (hasEnded) onClosed();
  });
  document.body.append(dialog);
  dialog.showModal();
}

/**
 * What the dialog says after the end, with the consent to keep: it proves itself at every registry.
 * @param {number} count
 * @param {string} signature
 */
function ended(count, signature) {
  const keep = async () => save("deactivation.json", JSON.stringify(await call(`deactivations/${signature}`), null, 2));
  return [
    element("h2", { id: "ending" }, count === 1 ? "It has stopped" : `${count} triggers have stopped`),
    element("p", {}, "Keep the signed end: another registry that has these triggers, or a relayer that was not told, takes it too."),
    element("div", { class: "choice" },
      element("button", { type: "button", click: () => void keep() }, "Save deactivation.json"),
      element("form", { method: "dialog" }, element("button", { autofocus: true }, "Close"))),
  ];
}

/**
 * What ends these triggers. It comes from the registry: it must end these triggers and no other.
 * @param {Owned[]} triggers
 * @returns {Promise<TypedData>}
 */
export async function endOf(triggers) {
  const [triggerSigs, protocols] = [triggers.map(({ sig }) => sig), [...new Set(triggers.map(({ protocol }) => protocol))]];
  if (protocols.length !== 1) throw new Error(`These triggers were signed under several names, ${protocols.join(", ")}: stop those of one name at a time.`);
  const { typedData: data } = await call("triggers/deactivate/sign-params", { method: "POST", body: { triggerSigs } });
  const domain = { name: `${protocols[0]} Protocol - Registry`, version: "1" };
  const wanted = { domain, primaryType: "Deactivate", types: DEACTIVATE, message: { triggerSigs } };
  if (hashes(data).digest !== hashes(wanted).digest) {
    throw new Error("The registry wants something else to be signed than the end of these triggers. Nothing was signed.");
  }
  return wanted;
}

/**
 * @param {Owned[]} triggers
 * @param {string} signature
 */
export async function sendEnd(triggers, signature) {
  await call("triggers/deactivate", { method: "POST", body: { triggerSigs: triggers.map(({ sig }) => sig), signature } });
}
