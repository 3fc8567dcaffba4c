"""The caller of an operation on webhooks: an operator, or where the settings allow it a wallet."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final, Self

from muniment.auth.caller import TokenCaller
from muniment.auth.operators import OperatorCaller
from muniment.context import Context
from muniment.errors import MissingCredential, Refusal, UnknownPath, WebhooksForOperators
from muniment.feed.followers import client_names
from muniment.webhooks.store import Maker

if TYPE_CHECKING:
    from muniment.http.request import Request
    from muniment.settings import Settings

# A wallet is free to make; an operator is known.
HOOKS_PER_WALLET_MAX: Final = 5
HOOKS_PER_OPERATOR_MAX: Final = 20


@dataclass(frozen=True, slots=True)
class HookCaller:
    """The maker of hooks, proved by `x-operator-key`; without one, by the token of a wallet."""

    maker: Maker
    # The names of a wallet's client; none for operators, and for a client that is not bounded.
    client: tuple[str, ...] = ()

    security: ClassVar[list[dict[str, list[str]]]] = [*OperatorCaller.security, *TokenCaller.security]
    refuses_with: ClassVar[tuple[type[Refusal], ...]] = tuple(
        dict.fromkeys((*OperatorCaller.refuses_with, *TokenCaller.refuses_with, UnknownPath, WebhooksForOperators))
    )

    @classmethod
    async def from_request(cls, request: Request) -> Self:
        """Raises the refusals of `OperatorCaller` and `TokenCaller`, `UnknownPath`, `WebhooksForOperators`."""
        context = Context.from_request(request)
        require_webhooks(context)
        if request.headers(b"x-operator-key"):
            return cls(Maker(operator=(await OperatorCaller.from_request(request)).name))
        if not request.headers(b"x-auth-token") and not request.headers(b"authorization"):
            raise MissingCredential("x-operator-key is missing, or the x-auth-token of a wallet")
        caller = TokenCaller.from_request(request)
        if context.settings.webhooks != "users":
            raise WebhooksForOperators("on this service only operators may have webhooks; GET /events is for everybody")
        names = () if request.client.is_exempt else client_names(context, request)
        return cls(Maker(owner=caller.address.raw), names)


def hooks_max(maker: Maker) -> int:
    """How many hooks a maker may have."""
    return HOOKS_PER_OPERATOR_MAX if maker.owner is None else HOOKS_PER_WALLET_MAX


def are_on(settings: Settings) -> bool:
    """Whether there are webhooks, and their events are delivered: without the feed nobody could look after them."""
    return settings.webhooks != "off" and settings.feed != "off"


def require_webhooks(context: Context) -> None:
    """Raise `UnknownPath` when the operator has switched webhooks, or the feed, off."""
    if not are_on(context.settings):
        raise UnknownPath("this service has no webhooks")
