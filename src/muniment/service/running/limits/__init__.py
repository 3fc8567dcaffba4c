"""Limits for strangers: rate limits that the processes of a machine count together, and refusals under overload."""
