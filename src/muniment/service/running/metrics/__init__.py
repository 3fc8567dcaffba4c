"""Metrics of a process: counts and times, in its memory."""
