"""The commands about the change feed."""
