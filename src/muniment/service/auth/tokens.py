"""Tokens given at login: JWTs (RFC 7519) signed with Ed25519 (EdDSA, RFC 8037), one algorithm and no other."""

from __future__ import annotations

import base64
import re
from typing import TYPE_CHECKING, Any, Final

import jwt

from muniment.protocol.errors import Invalid, InvalidToken
from muniment.protocol.evm.address import Address
from muniment.service.auth.secrets import Ring, ring_of

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from jwt.types import Options

    from muniment.service.context import Context

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
    secret, now_s = ring_of(context.secrets()).newest, context.now_ms() // 1000
    claims = {
        "iss": context.settings.issuer, "aud": context.settings.issuer, "sub": str(address),
        "iat": now_s, "nbf": now_s, "exp": now_s + lifetime_s,
        "jti": context.random_bytes(16).hex(),
    }  # fmt: skip
    return jwt.encode(claims, secret.signing_key, algorithm=_ALGORITHM, headers={"kid": secret.id})


def check_token(context: Context, token: str) -> Address:
    """The address in a token. Raises `InvalidToken`."""
    claims = _signed_claims(ring_of(context.secrets()), token)
    now_s = context.now_ms() // 1000
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
