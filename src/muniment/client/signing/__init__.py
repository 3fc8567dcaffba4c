"""Wallets outside this process or in a file: each is a `Signer`. Whoever uses one checks its signatures."""
