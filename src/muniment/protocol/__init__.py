"""What is true without a server: shapes, rules, hashes, typed data and proofs. It opens no file and no connection."""
