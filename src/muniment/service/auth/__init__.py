"""Authentication: secrets and the keys derived from them, nonces, tokens, API keys, and the caller of a request."""
