// Sign elsewhere: save what is to be signed, sign it with any tool or device, and paste the signature.

import { blame, element, fill, labelled, messageOf, save } from "./dom.js";
import { DOMAIN_TYPES, addressOf, digest, signerOf } from "./proofs/typed-data.js";

/** @typedef {import("./proofs/typed-data.js").TypedData} TypedData */

/**
 * The folded part of a page for a signature that another program makes; the parameters are those of `fillElsewhere`.
 * @param {() => Promise<TypedData | null>} read
 * @param {(data: TypedData, signature: string, signer: string) => Promise<void>} onSigned
 * @param {string} [owner]
 */
export function signElsewhere(read, onSigned, owner = "") {
  const place = element("details", { class: "elsewhere" }, element("summary", {}, "Sign elsewhere"));
  fillElsewhere(place, read, onSigned, owner);
  return place;
}

/**
 * @param {HTMLElement} place
 * @param {() => Promise<TypedData | null>} read what is to be signed now; null while it is not known
 * @param {(data: TypedData, signature: string, signer: string) => Promise<void>} onSigned
 * @param {string} [owner] who has to sign; without it the reader says who signs: any 65 bytes are somebody's signature
 */
export function fillElsewhere(place, read, onSigned, owner = "") {
  const box = element("textarea", { rows: 3, spellcheck: "false", placeholder: "0x…", autocomplete: "off" });
  const by = element("input", { spellcheck: "false", autocomplete: "off", placeholder: "0x…", value: owner });
  const told = element("p", { "aria-live": "polite" });
  const tell = (/** @type {string} */ words, isBad = true) => {
    told.className = isBad ? "bad" : "ok";
    fill(told, words);
  };
  /** @param {(data: TypedData) => void | Promise<void>} work */
  const withData = (work) => async () => {
    tell("", false);
    try {
      const data = await read();
      if (data) await work(data);
      else tell("There is nothing to sign yet.");
    } catch (error) {
      tell(messageOf(error));
    }
  };
  const take = async (/** @type {TypedData} */ data) => {
    const wanted = addressOf(by.value.trim());
    blame(by, wanted ? "" : "the address whose signature this is");
    if (!wanted) return;
    const signature = box.value.trim();
    const signer = signerOf(digest(data), signature);
    if (signer !== wanted) throw new Error(`Nothing was sent: over this data, it is a signature by ${signer}, not by ${wanted}. ${owner ? "" : "Was the form changed after the file was saved?"}`);
    tell(`Signed by ${signer}. Sending …`, false);
    await onSigned(data, signature, signer);
  };
  place.append(
    element("p", {}, "For a device without a connection, a phone, or a wallet that this page does not find: save the typed "
      + "data, sign the file with eth_signTypedData_v4, and paste the signature."),
    element("button", { type: "button", click: withData((data) => save("typed-data.json", JSON.stringify(withDomain(data), null, 2))) }, "Save typed-data.json"),
    ...(owner ? [] : [labelled("Signer", by, "The address that signs")]),
    labelled("Signature", box, "65 bytes in hex. The signer is recovered here before anything is sent."),
    element("button", { type: "button", click: withData(take) }, "Use this signature"), told);
}

/** @param {TypedData} data */
function withDomain(data) {
  return { ...data, types: { ...data.types, EIP712Domain: DOMAIN_TYPES } };
}
