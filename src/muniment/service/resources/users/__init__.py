"""Wallet owners: log-in by signature, tokens, API keys, balances."""
