"""Who a request comes from: the address of the connection, or what a proxy that is trusted says about it."""

from __future__ import annotations

from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import TYPE_CHECKING, Final

from muniment.http.reply import WRITE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

_Address = IPv4Address | IPv6Address
# RFC 9110 section 9.2.1: what a client does not expect to change anything with.
_SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
# The longest address has 45 characters (IPv4 inside IPv6); brackets, a port and a zone may come with it.
_TEXT_MAX: Final = 80
# To read an address takes eight microseconds; who comes once comes again.
_ADDRESSES_KEPT: Final = 4_096


class Clients:
    """The clients of a service that stands behind some proxies, or none."""

    def __init__(self, proxies: Sequence[IPv4Network | IPv6Network]) -> None:
        """`proxies` are the networks whose machines are believed when they say whom they speak for."""
        self._proxies = tuple(proxies)

    def address(self, scope: Scope) -> str:
        """The address that a request comes from, empty when there is none.

        `X-Forwarded-For` counts only from a trusted proxy, and there from the right, up to the first address that is
        no proxy: what stands left of that, anybody may have written.
        """
        peer: str = (scope.get("client") or ("",))[0]
        if not self._proxies:
            return peer
        address = _parsed(peer)
        if address is None or not self._is_proxy(address):
            return peer if address is None else str(address)
        for entry in reversed(_forwarded(scope)):
            before = _parsed(entry)
            if before is None:  # not an address: the proxy that passed it on is as far as anybody can see
                break
            address = before
            if not self._is_proxy(address):
                break
        return str(address)

    def _is_proxy(self, address: _Address) -> bool:
        return any(address in network for network in self._proxies)


class NotesWriters:
    """An ASGI layer that tells `note` which client may have written, before that client has its answer."""

    def __init__(self, app: ASGIApp, clients: Clients, note: Callable[[str], None]) -> None:
        """Wrap `app`."""
        self._app = app
        self._clients = clients
        self._note = note

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request; those with a safe method pass through."""
        if scope["type"] != "http" or scope["method"] in _SAFE:
            await self._app(scope, receive, send)
            return
        client = self._clients.address(scope)
        scope.pop(WRITE, None)  # the answer goes by here

        async def send_noted(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._note(client)
            await send(message)

        try:
            await self._app(scope, receive, send_noted)
        finally:  # also one that went away without an answer
            self._note(client)


def _forwarded(scope: Scope) -> list[str]:
    """The entries of `X-Forwarded-For`; several fields are one list (RFC 9110 section 5.3)."""
    fields: list[str] = [value.decode("latin-1") for name, value in scope["headers"] if name == b"x-forwarded-for"]
    joined: str = ",".join(fields)
    return joined.split(",")


def _parsed(text: str) -> _Address | None:
    """An address as proxies write it: some add the port. IPv4 inside IPv6 is the same client as IPv4."""
    text = text.strip()
    return _read(text) if len(text) <= _TEXT_MAX else None


@lru_cache(maxsize=_ADDRESSES_KEPT)
def _read(text: str) -> _Address | None:
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        address = ip_address(text)
    except ValueError:
        return None
    return (address.ipv4_mapped or address) if isinstance(address, IPv6Address) else address
