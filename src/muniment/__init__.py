"""Muniment: a self-hosted registry and intent service for wallet-signed automation on EVM chains."""
