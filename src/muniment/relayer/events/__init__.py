"""Events on chains that make triggers due: read from nodes, planned, and taken back with a reorganisation."""
