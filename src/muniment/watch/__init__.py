"""The watcher: follows settlers on chains, and notes in intents what it finds."""
