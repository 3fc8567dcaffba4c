"""Metrics of a registry: counts and times, in a file that all its processes share."""
