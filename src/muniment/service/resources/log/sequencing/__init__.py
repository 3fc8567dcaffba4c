"""Writes the log: reads facts from their tables, hashes and stores them, checks the tree and signs it."""
