"""The address of a client: that of the connection, or one that a trusted proxy forwards."""

from __future__ import annotations

from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from muniment.http.request import Request

_Address = IPv4Address | IPv6Address
# The longest address has 45 characters (IPv4 inside IPv6); brackets, a port and a zone may come with it.
_TEXT_MAX: Final = 80
# Addresses kept as parsed: parsing takes eight microseconds, and a client sends many requests.
_ADDRESSES_KEPT: Final = 4_096


class ClientAddresses:
    """Finds the address of the client of each request, with or without proxies before the service."""

    def __init__(self, proxies: Sequence[IPv4Network | IPv6Network]) -> None:
        """`proxies` are the networks of the proxies that are trusted."""
        self._proxies = tuple(proxies)

    def address(self, request: Request) -> str:
        """The client address of a request; empty if unknown.

        `X-Forwarded-For` counts only from a trusted proxy. It is read from the right up to the first address that is
        not a proxy: any client may have written the entries to the left of that one.
        """
        peer = request.peer
        if not self._proxies:
            return peer
        address = _parsed(peer)
        if address is None or not self._is_proxy(address):
            return peer if address is None else str(address)
        for entry in reversed(_forwarded(request)):
            before = _parsed(entry)
            if before is None:  # not an address: the proxy that passed it on is the last one that is known
                break
            address = before
            if not self._is_proxy(address):
                break
        return str(address)

    @property
    def has_proxies(self) -> bool:
        """Whether any proxy is trusted."""
        return bool(self._proxies)

    def is_proxy(self, peer: str) -> bool:
        """Whether `peer` is a proxy that is trusted."""
        address = _parsed(peer) if self._proxies else None
        return address is not None and self._is_proxy(address)

    def _is_proxy(self, address: _Address) -> bool:
        return any(address in network for network in self._proxies)


def is_within(peer: str, networks: Sequence[IPv4Network | IPv6Network]) -> bool:
    """Whether an address belongs to one of the networks; False for a text that is no address."""
    address = _parsed(peer)
    return address is not None and any(address in network for network in networks)


def _forwarded(request: Request) -> list[str]:
    """The entries of `X-Forwarded-For`; several fields are one list (RFC 9110 section 5.3)."""
    return ",".join(request.headers(b"x-forwarded-for")).split(",")


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
