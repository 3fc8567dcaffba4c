"""Content identifiers, UnixFS and CAR: how bytes become a CID and how a CID leads back to bytes.

Pure: nothing here reads a clock, a file or a network. Blocks come and go through plain functions.

    varint → cid → block → dag_pb → unixfs (bytes to blocks) → dag (blocks to bytes)
                                    car    (blocks on the wire)

What comes in as text is checked and refused as `InvalidCid`. What is decoded from blocks is not trusted
either: a block that is not what its CID says is `Integrity`.
"""
