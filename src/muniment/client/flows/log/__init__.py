"""The transparency log of a registry: follow it, compare its checkpoints, prove that a record is in it."""
