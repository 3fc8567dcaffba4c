"""The engine for SQLite: one file in the data directory, one writer a process, group commits."""
