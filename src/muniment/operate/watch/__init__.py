"""The watcher: follows settlers on chains, and applies their events to intents."""
