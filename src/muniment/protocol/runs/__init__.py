"""Runs: what a relayer records when a trigger was due, its hash, and the rules for it."""
