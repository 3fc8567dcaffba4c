"""Streaming replicas of a PostgreSQL database.

`replicated` chooses the database for each request. `replica` follows the progress of a replica. `recent_writers` keeps
which clients have just written and must still read from the primary.
"""
