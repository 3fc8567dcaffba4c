"""The engine for PostgreSQL: statements that arrive together travel together, over a few connections."""
