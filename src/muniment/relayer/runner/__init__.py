"""One run of a function: its answers from pinned blocks, the sandbox, and the record of the result."""
