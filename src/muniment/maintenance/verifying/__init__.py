"""`muniment verify`: everything that is stored proves itself."""
