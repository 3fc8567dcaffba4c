// A trigger: who signed it is recovered here from what the registry answers, and its owner can end it.

import { call } from "./api.js";
import { element, fill, find, messageOf } from "./dom.js";
import { signElsewhere } from "./elsewhere.js";
import { digest, hashes, signerOf, textDigest } from "./proofs/typed-data.js";

const proof = find("proof");
const sig = proof?.dataset["sig"] ?? "";
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
    const data = typedData(trigger, place.dataset["protocol"] ?? "");
    const found = hashes(data);
    const signer = signerOf(digest(data), trigger.sig);
    fill(details, ...[["Domain", found.domain], ["Message", found.message], ["Digest", found.digest]].flatMap(([name, value]) =>
      [element("dt", {}, name), element("dd", { class: "mono" }, value)]));
    const isRight = signer === trigger.signer && trigger.sig === sig;
    place.className = isRight ? "check yes" : "check no";
    verdict.textContent = isRight
      ? `Yes. The signature over the digest is by ${signer}, under the domain ${data.domain.name}.`
      : `No. Under the domain ${data.domain.name} this is a signature by ${signer}, not by ${trigger.signer}.`;
  } catch (error) {
    place.className = "check no";
    verdict.textContent = `No. ${messageOf(error)}`;
  }
}

/**
 * @param {any} trigger
 * @param {string} protocol
 * @returns {import("./proofs/typed-data.js").TypedData}
 */
function typedData(trigger, protocol) {
  const { functionCid, version, input, config, executionFeeLimit, minValidations } = trigger;
  return {
    domain: { name: `${protocol} Protocol - Registry`, version: "1" }, primaryType: "Trigger", types: trigger.types,
    message: { functionCid, version, input, config, executionFeeLimit, minValidations },
  };
}

/** @param {HTMLElement} place */
function offerEnd(place) {
  const told = element("p", { "aria-live": "polite" });
  /** @type {any} */
  let data = null;
  const load = async () => {
    data ??= (await call("triggers/deactivate/sign-params", { method: "POST", body: { triggerSigs: [sig] } })).typedData;
    return data;
  };
  const send = async (/** @type {string} */ signature) => {
    await call("triggers/deactivate", { method: "POST", body: { triggerSigs: [sig], signature } });
    location.reload();
  };
  const sign = async () => {
    told.className = "";
    told.textContent = "Waiting for the wallet …";
    try {
      const { connect, signTypedData } = await import("./wallet.js");
      await send(await signTypedData(await connect(), await load()));
    } catch (error) {
      told.className = "bad";
      told.textContent = messageOf(error);
    }
  };
  const elsewhere = signElsewhere(() => data, send);
  elsewhere.addEventListener("toggle", () => void load());
  place.append(element("button", { type: "button", class: "danger", click: () => void sign() }, "Sign the deactivation"), told, elsewhere);
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
      types: { Deactivate: [{ name: "triggerSigs", type: "string[]" }] },
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
