// Sign elsewhere: save what is to be signed, sign it with any tool or device, and paste the signature.

import { element, labelled, messageOf, save } from "./dom.js";
import { DOMAIN_TYPES, digest, signerOf } from "./proofs/typed-data.js";

/**
 * @param {() => import("./proofs/typed-data.js").TypedData | null} read what is to be signed now; null while it is not known
 * @param {(signature: string, signer: string) => Promise<void>} onSigned
 * @returns {HTMLElement}
 */
export function signElsewhere(read, onSigned) {
  const box = element("textarea", { rows: 3, spellcheck: false, placeholder: "0x…", autocomplete: "off" });
  const told = element("p", { "aria-live": "polite" });
  const take = async () => {
    const data = read();
    if (!data) return;
    try {
      const signature = box.value.trim();
      const signer = signerOf(digest(data), signature);
      told.className = "ok";
      told.textContent = `Signed by ${signer}. Sending …`;
      await onSigned(signature, signer);
    } catch (error) {
      told.className = "bad";
      told.textContent = messageOf(error);
    }
  };
  return element("details", { class: "elsewhere" },
    element("summary", {}, "Sign elsewhere"),
    element("p", {}, "For a device without a connection, a phone, or a wallet that this page does not find: save the typed "
      + "data, sign the file with eth_signTypedData_v4, and paste the signature."),
    element("button", { type: "button", click: () => {
      const data = read();
      if (data) save("typed-data.json", JSON.stringify(withDomain(data), null, 2));
    } }, "Save typed-data.json"),
    labelled("Signature", box, "65 bytes in hex. The signer is recovered here before anything is sent."),
    element("button", { type: "button", click: () => void take() }, "Use this signature"), told);
}

/** @param {import("./proofs/typed-data.js").TypedData} data */
function withDomain(data) {
  return { ...data, types: { EIP712Domain: DOMAIN_TYPES, ...data.types } };
}
