"""The operations of the client, as flows without I/O."""
