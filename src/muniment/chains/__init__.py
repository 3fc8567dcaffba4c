"""Access to EVM chains: the catalogue of chains, RPC, balances, tokens and prices."""
