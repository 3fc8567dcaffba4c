"""The EVM's own formats, all pure: addresses, hashes, signatures, the ABI, typed data (EIP-712)."""
