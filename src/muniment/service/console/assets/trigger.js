// A trigger: who signed it is recovered here from what the registry answers, and its owner can end it.

import { call } from "./api.js";
import { element, fill, find, messageOf, settle } from "./dom.js";
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
 * The button that ends the trigger.
 * @param {HTMLElement} place
 */
function offerEnd(place) {
  const [words = "", protocol = ""] = [place.dataset["words"], proof?.dataset["protocol"]];
  const confirm = async () => {
    try {
      const { confirmEnd } = await import("./ending.js");
      confirmEnd([{ sig, protocol, words }], owner, () => location.reload());
    } catch (error) {
      place.append(element("p", { class: "bad", role: "status" }, `Load the page again. ${messageOf(error)}`));
    }
  };
  place.append(element("button", { type: "button", class: "danger", click: () => void confirm() }, "Deactivate"));
  // Once another account is connected, this is no offer to its reader.
  document.addEventListener("account", async () => {
    const { account } = await import("./wallet.js");
    const by = account();
    place.hidden = by !== null && by.address !== owner;
  });
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
