"""Secrets, the keys derived from them, and the ring that an operator writes down."""

from __future__ import annotations

import hashlib
import hmac

import pytest
from hypothesis import given, strategies as st

from each_row import each_row
from muniment.service.auth.secrets import RING_SIZE_MAX, Secret, parse_secrets, ring_of
from muniment.service.running.settings import SettingError

A, B = b"\x0a" * 32, b"\x0b" * 32


def hkdf(raw: bytes, info: bytes, length: int) -> bytes:
    """RFC 5869 with SHA-256 and no salt, for up to 32 bytes: one block."""
    key = hmac.digest(b"\0" * 32, raw, hashlib.sha256)
    return hmac.digest(key, info + b"\1", hashlib.sha256)[:length]


def test_each_use_has_its_own_key_by_its_label() -> None:
    secret = Secret.derived_from(A)
    assert secret.id == hkdf(A, b"muniment id", 4).hex()
    assert secret.nonce_key == hkdf(A, b"muniment nonce", 32)
    assert secret.api_key_key == hkdf(A, b"muniment api key", 32)
    assert secret.signing_key.private_bytes_raw() == hkdf(A, b"muniment token signing", 32)


@given(st.binary(min_size=32, max_size=32))
def test_no_two_keys_are_equal_and_none_is_the_secret(raw: bytes) -> None:
    secret = Secret.derived_from(raw)
    keys = [raw, secret.nonce_key, secret.api_key_key, secret.signing_key.private_bytes_raw()]
    assert len(set(keys)) == 4
    assert not any(key.startswith(bytes.fromhex(secret.id)) for key in keys)


def test_secrets_that_differ_in_one_bit_share_nothing() -> None:
    one, other = Secret.derived_from(A), Secret.derived_from(A[:-1] + b"\x0b")
    assert one.id != other.id
    assert one.nonce_key != other.nonce_key
    assert one.api_key_key != other.api_key_key
    assert one.signing_key.private_bytes_raw() != other.signing_key.private_bytes_raw()


def test_the_repr_of_a_secret_and_of_a_ring_shows_its_id_alone() -> None:
    ring = ring_of((A,))
    assert repr(ring.newest) == f"Secret(id={ring.newest.id!r})"
    assert repr(ring.newest) in repr(ring)


def test_a_ring_finds_its_secrets_by_id_newest_first() -> None:
    ring = ring_of((B, A))
    assert ring.newest == ring.secrets[0]
    assert ring.newest.id == Secret.derived_from(B).id
    old = ring.find(Secret.derived_from(A).id)
    assert old is ring.secrets[1]
    assert ring.find("00000000") is None
    assert ring.find("") is None


@each_row("between", [",", ", ", "\n", "\r\n", " , \n"], ids=repr)
def test_secrets_are_read_in_their_order(between: str) -> None:
    assert parse_secrets(f"{A.hex()}{between}{B.hex().upper()}\n") == (A, B)


SECRET = "c0ffee" * 10 + "1234"


@each_row(
    "text",
    [
        pytest.param("", id="empty"),
        pytest.param(" \n", id="blank"),
        pytest.param(SECRET[:-1], id="63 digits"),
        pytest.param(SECRET + "0", id="65 digits"),
        pytest.param("0x" + SECRET, id="0x"),
        pytest.param(SECRET[:-1] + "g", id="no hex"),
        pytest.param(SECRET + "," + SECRET.upper(), id="one twice"),
        pytest.param(SECRET + ";" + A.hex(), id="semicolon"),
        pytest.param(",".join(bytes([n] * 32).hex() for n in range(RING_SIZE_MAX + 1)), id="too many"),
        pytest.param("password", id="a password"),
    ],
)
def test_other_text_is_no_ring_and_is_not_repeated(text: str) -> None:
    with pytest.raises(SettingError) as caught:
        parse_secrets(text)
    assert "secret" in str(caught.value)
    for part in text.split(","):
        assert not part.strip() or part not in str(caught.value)


def test_a_ring_of_the_largest_size_is_read() -> None:
    ring = tuple(bytes([number] * 32) for number in range(RING_SIZE_MAX))
    assert parse_secrets("\n".join(raw.hex() for raw in ring)) == ring
