"""EVM chains: addresses, hashes, signatures, typed data, all pure; and what is read from nodes, which is not."""
