"""The change feed: every change of triggers, functions and intents, in order, for clients that follow the registry."""
