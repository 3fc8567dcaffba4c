"""Runs: what relayers recorded when triggers were due, what came of it, and who agrees."""
