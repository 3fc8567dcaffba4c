"""The shapes of the users slice."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from msgspec import Meta

from muniment.evm.address import Address
from muniment.evm.hex import HexString
from muniment.evm.signature import Signature
from muniment.wire import Record

# Ninety days: longer is no grace but a second key.
GRACE_SECONDS_MAX = 90 * 86_400
GRACE_SECONDS_DEFAULT = 86_400

_ADDRESS = "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed"

Token = Annotated[
    str, Meta(description="A JWT (EdDSA); send it as x-auth-token", examples=["eyJhbGciOiJFZERTQSJ9.e30.c2ln"])
]
ApiKey = Annotated[
    str,
    Meta(
        description="Send it as x-api-key",
        pattern="^mnk_[0-9a-f]{8}_[0-9a-f]{40}_[1-9][0-9]*_[0-9a-f]{64}$",
        examples=["mnk_0a1b2c3d_5aaeb6053f3e94c9b9a09f33669435e7ef1beaed_1_" + "0" * 64],
    ),
]
GraceSeconds = Annotated[
    int, Meta(ge=0, le=GRACE_SECONDS_MAX, description="How long the old key still works; 0: not at all")
]


class NonceRequest(Record, frozen=True):
    """Who wants to log in."""

    address: Address

    example: ClassVar[dict[str, Any]] = {"address": _ADDRESS}


class NonceResult(Record, frozen=True):
    """What to sign: the nonce as text, by `personal_sign` (EIP-191)."""

    address: Address
    nonce: HexString

    example: ClassVar[dict[str, Any]] = {"address": _ADDRESS, "nonce": "0x" + "2a" * 32}


class Login(Record, frozen=True):
    """The signature over the nonce."""

    address: Address
    signature: Signature

    example: ClassVar[dict[str, Any]] = {"address": _ADDRESS, "signature": "0x" + "1" * 128 + "1b"}


class LoginResult(Record, frozen=True, omit_defaults=True):
    """The token, and the address's email when an operator has set one."""

    address: Address
    token: Token
    email: Annotated[str, Meta(extra_json_schema={"format": "email"})] | None = None

    example: ClassVar[dict[str, Any]] = {"address": _ADDRESS, "token": "eyJhbGciOiJFZERTQSJ9.e30.c2ln"}


class ApiKeyResult(Record, frozen=True):
    """The caller's current API key."""

    address: Address
    api_key: ApiKey

    example: ClassVar[dict[str, Any]] = {
        "address": _ADDRESS, "apiKey": f"mnk_0a1b2c3d_{_ADDRESS[2:].lower()}_1_" + "0" * 64,
    }  # fmt: skip


class Rotation(Record, frozen=True):
    """How to rotate the API key."""

    grace_seconds: GraceSeconds = GRACE_SECONDS_DEFAULT

    example: ClassVar[dict[str, Any]] = {"graceSeconds": 0}


class KeySet(Record, frozen=True):
    """A JWK Set (RFC 7517): the public keys that tokens are signed with, newest first."""

    keys: list[dict[str, str]]

    example: ClassVar[dict[str, Any]] = {
        "keys": [{"kty": "OKP", "crv": "Ed25519", "alg": "EdDSA", "use": "sig", "kid": "0a1b2c3d", "x": "2i1V"}]
    }
