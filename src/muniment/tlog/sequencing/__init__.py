"""How facts come into the log: read from the tables, hashed, stored, checked and signed."""
