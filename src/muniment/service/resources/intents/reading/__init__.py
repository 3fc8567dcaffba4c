"""Reads of intents besides their records: the intent of a hash, the times of moves, and counts by hour."""
