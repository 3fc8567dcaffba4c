"""Formats of the EVM: addresses, hashes, signatures, the ABI, typed data (EIP-712). Pure."""
