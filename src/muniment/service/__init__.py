"""The registry: its HTTP interface, its storage, its console, and what they run on."""
