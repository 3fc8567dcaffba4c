"""The caller of a request, as the type of a handler's parameter, which requires a credential: a token or an API key.

Tokens are given at login: JWTs (RFC 7519) signed with Ed25519 (EdDSA, RFC 8037), one algorithm and no other.

API keys are derived, not stored, so they can be shown again at any time; only a generation is stored. A key is
`mnk_<secret id>_<address>_<generation>_<MAC>`. It is checked by deriving it again and comparing the whole text.
"""

from __future__ import annotations

import base64
import hmac
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self

import jwt

from muniment.protocol.errors import (
    ConflictingCredentials,
    Invalid,
    InvalidApiKey,
    InvalidToken,
    MissingCredential,
    Refusal,
)
from muniment.protocol.evm.address import Address
from muniment.service.auth.secrets import Ring, Secret, ring_of
from muniment.service.context import Context
from muniment.service.http.request import only

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from jwt.types import Options

    from muniment.service.http.request import Request

# The longest grace that a client can choose, `users.types.GRACE_SECONDS_MAX`.
GRACE_MS_MAX: Final = 90 * 86_400 * 1000
_KEY: Final = re.compile(r"mnk_([0-9a-f]{8})_([0-9a-f]{40})_([1-9][0-9]{0,17})_[0-9a-f]{64}")


def api_key(secret: Secret, address: Address, generation: int) -> str:
    """The key of `address` in a generation, under a secret."""
    mac = hmac.digest(secret.api_key_key, address.raw + generation.to_bytes(8), "sha256")
    return f"mnk_{secret.id}_{address.raw.hex()}_{generation}_{mac.hex()}"


def read_api_key(ring: Ring, key: str) -> tuple[Address, int]:
    """The address and the generation in a key. Raises `InvalidApiKey` unless a secret of `ring` made it."""
    match = _KEY.fullmatch(key)
    secret = ring.find(match[1]) if match else None
    if match is None or secret is None:
        raise InvalidApiKey("not an API key of this service")
    address, generation = Address.from_raw(bytes.fromhex(match[2])), int(match[3])
    if not hmac.compare_digest(api_key(secret, address, generation), key):
        raise InvalidApiKey("not an API key of this service")
    return address, generation


async def check_generation(context: Context, address: Address, generation: int) -> None:
    """Raise `InvalidApiKey` unless `generation` is the current one, or the previous one within its grace period."""
    row = await context.database.fetch_one(
        "SELECT key_generation, grace_until_ms FROM users WHERE address = ?", (address.raw,)
    )
    current, grace_until_ms = row or (0, 0)
    # A grace period beyond the maximum came from a clock that was ahead.
    in_grace = generation == current - 1 and 0 < grace_until_ms - context.clock.now_ms() <= GRACE_MS_MAX
    if generation != current and not in_grace:
        raise InvalidApiKey("this API key was replaced; GET /users/api-key returns the current one")


_ALGORITHM: Final = "EdDSA"
# The clock that dated a token may be ahead by this much (RFC 7519 section 4.1.5); a clock further ahead is in doubt.
SKEW_S: Final = 5 * 60
# A token of this service has about 450 characters. A longer text is refused unparsed.
_TOKEN_LENGTH_MAX: Final = 2_048
# JWS compact serialization (RFC 7515 section 7.1). The last of the 86 characters of a signature has four unused bits:
# a lenient decoder ignores them, so several texts would be one token. Only the text with zeros there is accepted.
_TOKEN: Final = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]{85}[AQgw]")
# Times are checked against the injected clock below, not against the machine's; issuer and audience as well.
_SIGNATURE_ONLY: Final[Options] = {
    "verify_exp": False, "verify_nbf": False, "verify_iat": False, "verify_aud": False,
    "verify_iss": False, "verify_sub": False, "verify_jti": False,
}  # fmt: skip


def issue_token(context: Context, address: Address, lifetime_s: int) -> str:
    """A token for a client that has proved control of `address`, valid for `seconds`."""
    secret, now_s = ring_of(context.secrets()).newest, context.clock.now_ms() // 1000
    claims = {
        "iss": context.settings.issuer, "aud": context.settings.issuer, "sub": str(address),
        "iat": now_s, "nbf": now_s, "exp": now_s + lifetime_s,
        "jti": context.random_bytes(16).hex(),
    }  # fmt: skip
    return jwt.encode(claims, secret.signing_key, algorithm=_ALGORITHM, headers={"kid": secret.id})


def check_token(context: Context, token: str) -> Address:
    """The address in a token. Raises `InvalidToken`."""
    claims = _signed_claims(ring_of(context.secrets()), token)
    now_s = context.clock.now_ms() // 1000
    not_before, expires = claims.get("nbf"), claims.get("exp")
    if type(not_before) is not int or type(expires) is not int:
        raise InvalidToken("the token lacks nbf or exp")
    if not not_before - SKEW_S <= now_s < expires:
        raise InvalidToken("the token has expired or is not valid yet; log in again")
    if claims.get("iss") != context.settings.issuer or claims.get("aud") != context.settings.issuer:
        raise InvalidToken("the token is for another service")
    try:
        return Address.parse(claims.get("sub", ""))
    except (Invalid, TypeError):
        raise InvalidToken("the token has no valid subject") from None


def _signed_claims(ring: Ring, token: str) -> dict[str, Any]:
    """The claims of a token signed by a secret of `ring`. Keys in the token's header are ignored."""
    if len(token) > _TOKEN_LENGTH_MAX:
        raise InvalidToken("the token is too long to be one of this service's")
    if not _TOKEN.fullmatch(token):
        raise InvalidToken("this service did not issue the token")
    try:
        header = jwt.get_unverified_header(token)
        kid = header.get("kid")
        secret = ring.find(kid) if isinstance(kid, str) else None
        if secret is None or header.get("alg") != _ALGORITHM:
            raise InvalidToken("this service did not issue the token")
        key = secret.signing_key.public_key()
        return jwt.decode(token, key, algorithms=[_ALGORITHM], options=_SIGNATURE_ONLY)
    except (jwt.PyJWTError, ValueError, RecursionError):
        raise InvalidToken("this service did not issue the token") from None


def key_set(ring: Ring) -> dict[str, list[dict[str, str]]]:
    """The public keys as a JWK Set (RFC 7517 section 5), so that other servers can verify tokens offline."""
    return {"keys": [_jwk(secret.id, secret.signing_key.public_key()) for secret in ring.secrets]}


def _jwk(kid: str, key: Ed25519PublicKey) -> dict[str, str]:
    x = base64.urlsafe_b64encode(key.public_bytes_raw()).decode().rstrip("=")
    return {"kty": "OKP", "crv": "Ed25519", "alg": _ALGORITHM, "use": "sig", "kid": kid, "x": x}


SECURITY_SCHEMES: Final[dict[str, Any]] = {
    "token": {"type": "apiKey", "in": "header", "name": "x-auth-token", "description": "The token of a wallet login"},
    "bearer": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT", "description": "The same token"},
    "apiKey": {"type": "apiKey", "in": "header", "name": "x-api-key", "description": "The key of GET /users/api-key"},
    "operatorKey": {
        "type": "apiKey", "in": "header", "name": "x-operator-key", "description": "A key of `muniment operators add`",
    },
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class TokenCaller:
    """A wallet owner who has logged in: `x-auth-token`, or the same as `Authorization: Bearer`."""

    address: Address

    security: ClassVar[list[dict[str, list[str]]]] = [{"token": []}, {"bearer": []}]
    refuses_with: ClassVar[tuple[type[Refusal], ...]] = (ConflictingCredentials, MissingCredential, InvalidToken)

    @classmethod
    def from_request(cls, request: Request) -> Self:
        """Raises `MissingCredential`, `InvalidToken`, `ConflictingCredentials`."""
        tokens = {only(request.headers(b"x-auth-token"), "x-auth-token"), only(_bearers(request), "Authorization")}
        tokens.discard(None)
        if len(tokens) > 1:
            raise ConflictingCredentials("the request carries two different tokens")
        token = next(iter(tokens), None)
        if token is None:
            raise MissingCredential("x-auth-token is missing; POST /users/authenticate returns one")
        address = check_token(Context.from_request(request), token)
        request.charge_wallet(address.raw)
        return cls(address)


@dataclass(frozen=True, slots=True)
class KeyCaller:
    """A developer with an API key in `x-api-key`. A key in the query string is ignored."""

    address: Address

    security: ClassVar[list[dict[str, list[str]]]] = [{"apiKey": []}]
    refuses_with: ClassVar[tuple[type[Refusal], ...]] = (ConflictingCredentials, MissingCredential, InvalidApiKey)

    @classmethod
    async def from_request(cls, request: Request) -> Self:
        """Raises `MissingCredential`, `InvalidApiKey`, `ConflictingCredentials`."""
        context = Context.from_request(request)
        key = only(request.headers(b"x-api-key"), "x-api-key")
        if key is None:
            raise MissingCredential("x-api-key is missing; GET /users/api-key returns it")
        address, generation = read_api_key(ring_of(context.secrets()), key)
        await check_generation(context, address, generation)
        request.charge_wallet(address.raw)
        return cls(address)


def _bearers(request: Request) -> list[str]:
    """The tokens of `Authorization: Bearer` (RFC 6750 section 2.1); other schemes are ignored."""
    values = (value.partition(" ") for value in request.headers(b"authorization"))
    return [token.strip() for scheme, _, token in values if scheme.lower() == "bearer"]
