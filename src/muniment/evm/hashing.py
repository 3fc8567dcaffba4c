"""Keccak-256, the hash of Ethereum (Yellow Paper, appendix A): Keccak before SHA-3 changed its padding."""

from __future__ import annotations

from typing import Protocol, cast

import sha3


class _Hash(Protocol):
    def digest(self) -> bytes: ...


class _Keccak(Protocol):
    def __call__(self, data: bytes, /) -> _Hash: ...


# safe-pysha3 carries no types. It is the fastest keccak that pip installs; hashlib's sha3_256 is another function.
_keccak_256 = cast("_Keccak", sha3.keccak_256)


def keccak256(data: bytes) -> bytes:
    """The 32-byte Keccak-256 hash of `data`."""
    return _keccak_256(data).digest()
