"""A block: bytes under their sha2-256 digest. A link to a block names its codec; the block itself has none."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Final, NamedTuple, TypeAlias

from muniment.protocol.errors import Integrity

# The largest block that Bitswap and the HTTP clients of IPFS accept (IPFS specifications, "soft limit" of 2 MiB).
BLOCK_SIZE_MAX: Final = 2 * 1024 * 1024


class Block(NamedTuple):
    """A block on its way to a store: its sha2-256 digest and its bytes."""

    digest: bytes
    data: bytes


# Reads a block: verified bytes for a sha2-256 digest. Raises `ContentNotFound` or `Integrity`.
GetBlock: TypeAlias = Callable[[bytes], bytes]


def block_of(data: bytes) -> Block:
    """`data` with its digest."""
    return Block(hashlib.sha256(data).digest(), data)


def check_block(digest: bytes, data: bytes) -> bytes:
    """`data` if it has this sha2-256 digest; raises `Integrity` otherwise."""
    if hashlib.sha256(data).digest() != digest:
        raise Integrity(f"block {digest.hex()} does not have the hash it is stored under")
    return data
