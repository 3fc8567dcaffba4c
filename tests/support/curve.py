"""secp256k1 in plain Python, from its definition (SEC 1, SEC 2): slow, independent of any library."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterator

# y² = x³ + 7 over the integers modulo P; POINT generates a group of ORDER points (SEC 2, section 2.4.1).
P = 2**256 - 2**32 - 977
ORDER = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141
POINT = (
    0x79BE667EF9DCBBAC55A06295CE870B07029BFCDB2DCE28D959F2815B16F81798,
    0x483ADA7726A3C4655DA4FBFC0E1108A8FD17B448A68554199C47D08FFB10D4B8,
)

# A point of the curve; None is the one at infinity.
Point = tuple[int, int] | None


def added(one: Point, other: Point) -> Point:
    if one is None or other is None:
        return one or other
    (x1, y1), (x2, y2) = one, other
    if x1 == x2 and (y1 + y2) % P == 0:
        return None
    slope = 3 * x1 * x1 * pow(2 * y1, -1, P) if x1 == x2 else (y2 - y1) * pow(x2 - x1, -1, P)
    x = (slope * slope - x1 - x2) % P
    return x, (slope * (x1 - x) - y1) % P


def times(number: int, point: Point) -> Point:
    result: Point = None
    for bit in f"{number % ORDER:b}":
        result = added(result, result)
        if bit == "1":
            result = added(result, point)
    return result


def lifted(x: int, parity: int) -> Point:
    """The point with this x and a y of this parity, None when there is none."""
    square = (x**3 + 7) % P
    y = pow(square, (P + 1) // 4, P)
    return (x, y if y % 2 == parity else P - y) if x < P and y * y % P == square else None


def recovered(digest: bytes, r: int, s: int, recovery_id: int) -> Point:
    """SEC 1, section 4.1.6; None also for numbers that are no signature."""
    point = lifted(r + ORDER * (recovery_id >> 1), recovery_id & 1)
    if point is None or not (0 < r < ORDER and 0 < s < ORDER):
        return None
    inverse = pow(r, -1, ORDER)
    hashed = int.from_bytes(digest)
    return added(times(s * inverse, point), times(-hashed * inverse, POINT))


def signed(digest: bytes, key: int) -> tuple[int, int, int]:
    """r, s and the recovery id, with the nonce of RFC 6979 and low s (BIP 62)."""
    hashed = int.from_bytes(digest) % ORDER
    for nonce in _nonces(key.to_bytes(32) + hashed.to_bytes(32)):
        point = times(nonce, POINT)
        assert point is not None
        r = point[0] % ORDER
        s = pow(nonce, -1, ORDER) * (hashed + r * key) % ORDER
        recovery_id = (point[0] >= ORDER) << 1 | point[1] & 1
        if r and s:
            return (r, s, recovery_id) if s <= ORDER // 2 else (r, ORDER - s, recovery_id ^ 1)
    raise AssertionError("nonces do not end")


def _nonces(seed: bytes) -> Iterator[int]:
    """RFC 6979, section 3.2, with SHA-256, for a key and a digest that is reduced."""
    key, value = bytes(32), b"\x01" * 32
    for separator in (b"\x00", b"\x01"):
        key = _mac(key, value + separator + seed)
        value = _mac(key, value)
    while True:
        value = _mac(key, value)
        if 0 < int.from_bytes(value) < ORDER:
            yield int.from_bytes(value)
        key = _mac(key, value + b"\x00")
        value = _mac(key, value)


def _mac(key: bytes, message: bytes) -> bytes:
    return hmac.digest(key, message, hashlib.sha256)
