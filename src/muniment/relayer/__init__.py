"""The relayer: runs the triggers that are due, and records runs and intents in a registry."""
