"""Streaming replicas of a PostgreSQL database.

`replicated` chooses the database for each request, `replica` knows how far a replica has come, `recent_writers` knows
which clients have just written and must still read from the primary.
"""
