"""How the log is read: its parts as they are stored and signed, and proofs for single facts."""
