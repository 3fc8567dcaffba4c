"""Intents: what a trigger's run asks for, with the proposals of solvers, logs, and what became of it on chain."""
