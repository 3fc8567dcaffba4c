// A trigger: who signed it is recovered here from what the registry answers, and its owner can end it.

import { call } from "./api.js";
import { element, fill, find, messageOf, settle } from "./dom.js";
import { signElsewhere } from "./elsewhere.js";
import { digest, hashes, signerOf, textDigest } from "./proofs/typed-data.js";

/** @typedef {import("./proofs/typed-data.js").TypedData} TypedData */

const DEACTIVATE = { Deactivate: [{ name: "triggerSigs", type: "string[]" }] };
const proof = find("proof");
const sig = proof?.dataset["sig"] ?? "";
const owner = proof?.dataset["signer"] ?? "";
const domain = { name: `${proof?.dataset["protocol"]} Protocol - Registry`, version: "1" };
if (proof && sig) void check(proof);
const end = find("deactivate");
if (end && sig) offerEnd(end);
const ended = find("ended");
if (ended?.dataset["deactivation"]) void checkEnd(ended, ended.dataset["deactivation"]);

/** @param {HTMLElement} place */
async function check(place) {
  const verdict = element("p", { class: "verdict", "aria-live": "polite" }, "Checking …");
  const details = element("dl", { class: "facts" });
  fill(place, place.querySelector("h2"), verdict, details);
  try {
    const trigger = await call(`triggers/${sig}`);
    const data = typedData(trigger);
    const found = hashes(data);
    const signer = signerOf(digest(data), trigger.sig);
    fill(details, ...[["Domain", found.domain], ["Message", found.message], ["Digest", found.digest]].flatMap(([name, value]) =>
      [element("dt", {}, name), element("dd", { class: "mono" }, value)]));
    const isRight = signer === trigger.signer && signer === owner && trigger.sig === sig;
    settle(place, isRight ? "yes" : "no", isRight ? "checked here" : "is wrong");
    verdict.textContent = isRight
      ? `Yes. The signature over the digest is by ${signer}, under the domain ${data.domain.name}.`
      : `No. Under the domain ${data.domain.name} this is a signature by ${signer}, not by ${owner}.`;
  } catch (error) {
    settle(place, "no", "could not be checked");
    verdict.textContent = `No. ${messageOf(error)}`;
  }
}

/**
 * @param {any} trigger
 * @returns {TypedData}
 */
function typedData(trigger) {
  const { functionCid, version, input, config, executionFeeLimit, minValidations } = trigger;
  return {
    domain, primaryType: "Trigger", types: trigger.types,
    message: { functionCid, version, input, config, executionFeeLimit, minValidations },
  };
}

/**
 * The button that ends the trigger, and what its reader is told before anything is signed.
 * @param {HTMLElement} place
 */
function offerEnd(place) {
  const told = element("p", { "aria-live": "polite" });
  const words = /** @type {HTMLTemplateElement} */ (place.querySelector("template")).content;
  const sign = async () => {
    told.className = "";
    told.textContent = "Waiting for the wallet …";
    try {
      const { connect, signTypedData } = await import("./wallet.js");
      const by = await connect();
      if (by.address !== owner) throw new Error(`The wallet's account is ${by.address}. Only ${owner} can end this trigger: choose that account in the wallet.`);
      const data = await endData();
      await sendEnd(data, await signTypedData(by, data));
    } catch (error) {
      told.className = "bad";
      told.textContent = messageOf(error);
    }
  };
  const dialog = element("dialog", { "aria-labelledby": "end", class: "end" },
    element("h2", { id: "end" }, "End this trigger for ever?"), words,
    element("p", {}, "The owner signs it: ", element("code", {}, owner), ". Nothing is paid."),
    element("div", { class: "choose" },
      element("button", { type: "button", class: "danger", click: () => void sign() }, "Sign the deactivation"),
      element("button", { type: "button", click: () => dialog.close() }, "Keep it")),
    told, signElsewhere(endData, sendEnd, owner));
  place.append(element("button", { type: "button", class: "danger", click: () => dialog.showModal() }, "Deactivate"), dialog);
  // Once another account is connected, this is no offer to its reader.
  document.addEventListener("account", async () => {
    const { account } = await import("./wallet.js");
    const by = account();
    place.hidden = by !== null && by.address !== owner && !dialog.open;
  });
}

/**
 * What ends this trigger. It comes from the registry: it must end this trigger and no other.
 * @returns {Promise<TypedData>}
 */
async function endData() {
  const { typedData: data } = await call("triggers/deactivate/sign-params", { method: "POST", body: { triggerSigs: [sig] } });
  const wanted = { domain, primaryType: "Deactivate", types: DEACTIVATE, message: { triggerSigs: [sig] } };
  if (hashes(data).digest !== hashes(wanted).digest) {
    throw new Error("The registry wants something else to be signed than the end of this trigger. Nothing was signed.");
  }
  return wanted;
}

/**
 * @param {TypedData} _
 * @param {string} signature
 */
async function sendEnd(_, signature) {
  await call("triggers/deactivate", { method: "POST", body: { triggerSigs: [sig], signature } });
  location.reload();
}

/**
 * @param {HTMLElement} place
 * @param {string} name
 */
async function checkEnd(place, name) {
  const told = element("p", { "aria-live": "polite" });
  place.after(told);
  try {
    const [consent, trigger] = await Promise.all([call(`deactivations/${name}`), call(`triggers/${sig}`)]);
    const hash = consent.form === "eip191" ? textDigest(consent.triggerSigs.join(",")) : digest({
      domain: consent.domain, primaryType: "Deactivate", message: { triggerSigs: consent.triggerSigs },
      types: DEACTIVATE,
    });
    if (!consent.triggerSigs.includes(sig)) throw new Error("the deactivation does not list this trigger");
    if (signerOf(hash, consent.signature) !== trigger.signer) throw new Error("the deactivation is not by the signer");
    told.className = "ok";
    told.textContent = `Checked here: ${trigger.signer} signed the end of ${consent.triggerSigs.length} trigger(s), this one among them.`;
  } catch (error) {
    told.className = "bad";
    told.textContent = `This could not be proved: ${messageOf(error)}`;
  }
}
