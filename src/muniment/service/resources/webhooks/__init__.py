"""Webhooks: receivers to which the change feed is delivered, signed as Standard Webhooks 1.0 says."""
