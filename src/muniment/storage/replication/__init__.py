"""Streaming replicas of a PostgreSQL database, and which clients must still read from the primary."""
