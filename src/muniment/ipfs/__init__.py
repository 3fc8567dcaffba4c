"""Content identifiers, UnixFS and CAR: how bytes become a CID and how a CID leads back to bytes.

Pure: nothing here reads a clock, a file or a network. Blocks come and go through plain functions.

    varint → cid → block → dag_pb → unixfs (bytes to blocks) → dag (blocks to bytes)
                                    car    (blocks on the wire)

A malformed text is refused as `InvalidCid`. Decoded blocks are not trusted either: a block that does not match its CID
is `Integrity`.
"""
