"""Access to EVM chains: RPC, balances, tokens, prices, and the catalogue of the chains that are served."""
