"""Gives every bundle to an IPFS node, which pins it: a durable queue, a client of the node, and the workers."""
