"""Wallets outside this process or in a file: each is a `Signer`. The caller checks its signatures."""
