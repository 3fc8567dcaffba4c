"""The caller of a request, as the type of a handler's parameter, which requires a credential."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self

from muniment.protocol.errors import ConflictingCredentials, InvalidApiKey, InvalidToken, MissingCredential, Refusal
from muniment.service.auth.api_keys import check_generation, read_api_key
from muniment.service.auth.secrets import ring_of
from muniment.service.auth.tokens import check_token
from muniment.service.context import Context

if TYPE_CHECKING:
    from muniment.protocol.evm.address import Address
    from muniment.service.http.request import Request

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


def only(values: list[str], name: str) -> str | None:
    """The one value of a header field. Two are refused, even if equal: a proxy may have checked only the other."""
    if len(values) > 1:
        raise ConflictingCredentials(f"{name} was sent more than once")
    return values[0] if values else None


def _bearers(request: Request) -> list[str]:
    """The tokens of `Authorization: Bearer` (RFC 6750 section 2.1); other schemes are ignored."""
    values = (value.partition(" ") for value in request.headers(b"authorization"))
    return [token.strip() for scheme, _, token in values if scheme.lower() == "bearer"]
