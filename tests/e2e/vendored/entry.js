// What the console's pages take from noble: two hash functions, and the public key behind a signature.
import { sha256 } from "@noble/hashes/sha2.js";
import { keccak_256 as keccak256 } from "@noble/hashes/sha3.js";
import { Point, recoverPublicKey } from "@noble/secp256k1";

export { keccak256, sha256 };

/**
 * The uncompressed public key (64 bytes, without its prefix) that made a signature over a digest.
 * `signature` has r and s (64 bytes), `recovery` is 0 or 1. Throws where there is none.
 */
export function publicKeyOf(digest, signature, recovery) {
  const recovered = Uint8Array.of(recovery, ...signature);
  return Point.fromBytes(recoverPublicKey(recovered, digest, { prehash: false })).toBytes(false).subarray(1);
}
