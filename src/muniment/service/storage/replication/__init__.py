"""Streaming replicas of a PostgreSQL database.

`replicated` chooses the server for each answer that may be late. `replica` follows the progress of a replica.
"""
