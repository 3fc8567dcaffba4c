"""Witnesses of the log: other parties that cosign its checkpoints, each time only after a larger tree of the same."""
