"""The resources of the interface: handlers, rows and work of each."""
