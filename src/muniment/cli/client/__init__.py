"""Commands that use a registry over HTTP, through the Python client."""
