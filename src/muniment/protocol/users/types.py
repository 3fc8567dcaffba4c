"""The shapes of users."""

from __future__ import annotations

import re
from typing import Annotated, Any, ClassVar, Final, Self

from msgspec import UNSET, Meta, UnsetType

from muniment.protocol.errors import InvalidBody, InvalidText
from muniment.protocol.evm.address import Address
from muniment.protocol.evm.hex import HexString
from muniment.protocol.evm.signature import Signature
from muniment.protocol.evm.words import SAFE_INTEGER_MAX
from muniment.protocol.wire import BoundedText, ProvedText, Record

# Ninety days. With a longer grace, the old key would amount to a second key.
GRACE_SECONDS_MAX = 90 * 86_400
GRACE_SECONDS_DEFAULT = 86_400

# The least that the setting of the lifetime takes too.
LIFETIME_SECONDS_MIN = 60

# RFC 5321 section 4.5.3.1.3: a path has 256 octets, two of them angle brackets.
EMAIL_LENGTH_MAX: Final = 254
_EMAIL: Final = re.compile(
    r"[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?(?:\.[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?)+"
)

_ADDRESS = "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed"

_MESSAGE = (
    "registry.example.org wants you to sign in with your Ethereum account:\n"
    f"{_ADDRESS}\n\n\nURI: https://registry.example.org\nVersion: 1\nChain ID: 1\n"
    f"Nonce: {'2a' * 32}\nIssued At: 2026-11-20T19:48:00Z"
)

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
    """The wallet that wants to log in."""

    address: Address

    example: ClassVar[dict[str, Any]] = {"address": _ADDRESS}


class NonceResult(Record, frozen=True, omit_defaults=True):
    """A nonce to sign as text by `personal_sign` (EIP-191).

    With a `publicUrl`, prefer an ERC-4361 text with the nonce: it is invalid at any other registry.
    """

    address: Address
    nonce: HexString
    public_url: (
        Annotated[
            str,
            Meta(
                description="The `URI` of an ERC-4361 log-in; its host is in the first line",
                examples=["https://registry.example.org"],
            ),
        ]
        | None
    ) = None

    example: ClassVar[dict[str, Any]] = {"address": _ADDRESS, "nonce": "0x" + "2a" * 32}


class LoginMessage(ProvedText):
    """An ERC-4361 text (Sign-In with Ethereum), signed as it is. Its content is checked after its signature."""

    __slots__ = ()

    bytes_max: ClassVar[int] = 2_048
    schema: ClassVar[dict[str, Any]] = {
        "type": "string", "maxLength": bytes_max, "examples": [_MESSAGE],
        "description": "A text of ERC-4361 with this address, the hex digits of a nonce without 0x, and the domain and "
        "URI of `publicUrl`; at most 2,048 bytes",
    }  # fmt: skip
    refuses = InvalidText

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises `InvalidText` for a text that is too long."""
        if len(text.encode()) > cls.bytes_max:
            raise InvalidText(f"at most {cls.bytes_max} bytes of UTF-8")
        return cls(text)


class Login(Record, frozen=True):
    """The signature over the nonce, or over `message`, which contains the nonce."""

    address: Address
    signature: Signature
    message: LoginMessage | None = None
    lifetime_seconds: (
        Annotated[
            int,
            Meta(
                ge=LIFETIME_SECONDS_MIN,
                le=SAFE_INTEGER_MAX,
                description="How long the token is valid; at most the registry's own lifetime of tokens, the default",
            ),
        ]
        | None
    ) = None

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


class UserName(BoundedText, length_max=100, example="Ada"):
    """The name of a user, stored unchanged; a client that shows it must escape it."""

    __slots__ = ()


class IntendedUse(BoundedText, length_max=255, example="Rebalancing"):
    """The purpose for which a user uses the registry, stored unchanged; its length is a rule of the interface."""

    __slots__ = ()


class Email(ProvedText):
    """An email address (RFC 5321 section 4.1.2, the common part), set by an operator."""

    __slots__ = ()

    schema: ClassVar[dict[str, Any]] = {
        "type": "string", "format": "email", "maxLength": 254, "examples": ["ada@example.org"],
    }  # fmt: skip
    refuses = InvalidText

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises `InvalidText`."""
        if len(text) > EMAIL_LENGTH_MAX or not _EMAIL.fullmatch(text):
            raise InvalidText("not an email address such as ada@example.org")
        return cls(text)


class NotByCaller(ProvedText):
    """A member of a profile that its owner cannot change."""

    __slots__ = ()

    schema: ClassVar[dict[str, Any]] = {"not": {}, "description": "Set by the operator; refused here"}
    refuses = InvalidBody

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises `InvalidBody` for every text."""
        del text
        raise InvalidBody("email is set by the operator of the service, not by an update")


class Profile(Record, frozen=True):
    """The profile that a user has written."""

    user_address: Address
    name: UserName
    intended_use: IntendedUse
    email: Email | None

    example: ClassVar[dict[str, Any]] = {
        "userAddress": _ADDRESS, "name": "Ada", "intendedUse": "Rebalancing", "email": None,
    }  # fmt: skip


class ProfileUpdate(Record, frozen=True):
    """The members to change; absent members stay unchanged."""

    name: UserName | UnsetType = UNSET
    intended_use: IntendedUse | UnsetType = UNSET
    email: NotByCaller | UnsetType = UNSET

    example: ClassVar[dict[str, Any]] = {"intendedUse": "Rebalancing"}
