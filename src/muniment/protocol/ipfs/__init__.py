"""Content identifiers, UnixFS and CAR: how bytes become a CID and how a CID leads back to bytes.

Pure: no module reads a clock, a file or a network. Callers pass functions that read blocks, and store the blocks that
they get.

    varint → cid → block → dag_pb → unixfs (bytes to blocks) → dag (blocks to bytes)
                                    car    (blocks on the wire)

Malformed text raises `InvalidCid`. Blocks are not trusted either: a block that does not match its CID raises
`Integrity`.
"""
