"""The command line: one module for each group of commands. The work is in `operate` or `service`."""
