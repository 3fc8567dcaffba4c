"""The block store: the bytes of bundles under their sha2-256 digests.

`store` says what every store does, `files` keeps blocks as files in the data directory.
"""
