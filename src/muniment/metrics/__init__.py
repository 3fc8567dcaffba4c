"""Counts and times of everything that a registry does, kept in memory that all its processes share."""
