/** Keccak-256 as Ethereum has it, 32 bytes. */
export function keccak256(bytes: Uint8Array): Uint8Array;
/** SHA-256 (FIPS 180-4), 32 bytes. */
export function sha256(bytes: Uint8Array): Uint8Array;
/** The public key (64 bytes) that made a signature (64 bytes) over a digest (32 bytes). Throws if there is none. */
export function publicKeyOf(digest: Uint8Array, signature: Uint8Array, recovery: number): Uint8Array;
