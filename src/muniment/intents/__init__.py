"""Intents: requests of triggers' runs, with proposals of solvers, logs, and outcomes on chain."""
