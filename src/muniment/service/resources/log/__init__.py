"""The transparency log: a Merkle tree over the registry's facts, in the formats of C2SP (c2sp.org)."""
