"""Keccak-256, the hash of Ethereum (Yellow Paper, appendix A): Keccak before SHA-3 changed its padding."""

from __future__ import annotations

from functools import lru_cache
from typing import Final, Protocol, cast

import sha3

# An entry, the data and its hash, takes at most about 500 bytes: 2 MB when full.
_HASHES_KEPT: Final = 4_096
_KEPT_BYTES_MAX: Final = 256


class _Hash(Protocol):
    def digest(self) -> bytes: ...


class _Keccak(Protocol):
    def __call__(self, data: bytes, /) -> _Hash: ...


# safe-pysha3 has no types. It is the fastest keccak that pip installs; hashlib's sha3_256 is a different function.
_keccak_256 = cast("_Keccak", sha3.keccak_256)


def keccak256(data: bytes) -> bytes:
    """The 32-byte Keccak-256 hash of `data`."""
    return _keccak_256(data).digest()


def keccak256_kept(data: bytes) -> bytes:
    """`keccak256` for data that is likely to be hashed again: hashes of short data are cached."""
    return _kept(data) if len(data) <= _KEPT_BYTES_MAX else keccak256(data)


_kept = lru_cache(maxsize=_HASHES_KEPT)(keccak256)
