"""Access to EVM chains: the catalogue of chains, RPC, nodes, logs, balances, tokens and prices."""
