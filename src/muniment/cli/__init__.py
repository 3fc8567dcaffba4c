"""The command line: one module for each group of commands. The work itself is in `muniment.operate`."""
