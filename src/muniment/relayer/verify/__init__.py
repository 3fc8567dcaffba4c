"""Runs that are made again, or for once: nothing is recorded."""
