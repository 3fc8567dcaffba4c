"""Limits for strangers: rate limits, and refusals under overload."""
