"""Chains as their nodes answer: RPC, balances, tokens, prices, and the catalogue of chains that are served."""
