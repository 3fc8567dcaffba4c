"""What is true of every EVM chain: addresses, hex, hashes, signatures, typed data. Pure; knows no resource."""
