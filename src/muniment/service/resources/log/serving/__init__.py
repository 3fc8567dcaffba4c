"""Read access to the log: its signed checkpoints, tiles and entries, and proofs for single facts."""
