// What wallets sign. Each signature is recovered here, and compared with the account.

import { messageOf } from "./dom.js";
import { concat, hex, utf8 } from "./proofs/bytes.js";
import { keccak256 } from "./proofs/crypto.js";
import { DOMAIN_TYPES, digest, signerOf, structHash, textDigest } from "./proofs/typed-data.js";
import { WalletError, request } from "./provider.js";

export { account, connect } from "./provider.js";

/** @typedef {import("./provider.js").Account} Account */
/** @typedef {import("./proofs/typed-data.js").TypedData} TypedData */

const SIGNATURE_LENGTH = 132;

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
