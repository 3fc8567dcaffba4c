"""Admission of requests: the address of the client, its rate limits, and the load of the process."""

from __future__ import annotations

from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from itertools import chain
from typing import TYPE_CHECKING, Final

from muniment.protocol.errors import Overloaded
from muniment.service.http.reply import Ready, Streamed
from muniment.service.running.limits.costs import (
    BODY_BYTES_FREE,
    HEAD_BYTES_FREE,
    HEAD_BYTES_PER_UNIT,
    LONG_READ_NS_FREE,
    READ,
    UNIT_NS,
)
from muniment.service.running.limits.overload import FairQueue, HeldBodies

if TYPE_CHECKING:
    from collections.abc import Sequence

    from muniment.service.http.operation import Operation
    from muniment.service.http.reply import Reply
    from muniment.service.http.request import Request
    from muniment.service.running.limits.buckets import Key
    from muniment.service.running.limits.limiter import Client, Limiter
    from muniment.service.running.limits.overload import Overload

_Address = IPv4Address | IPv6Address
# The longest address has 45 characters (IPv4 inside IPv6); brackets, a port and a zone may come with it.
_TEXT_MAX: Final = 80
# Addresses kept as parsed: parsing takes eight microseconds, and a client sends many requests.
_ADDRESSES_KEPT: Final = 4_096


class ClientAddresses:
    """Finds the client address of each request, with or without proxies in front of the service."""

    def __init__(self, proxies: Sequence[IPv4Network | IPv6Network]) -> None:
        """`proxies` are the networks of the trusted proxies."""
        self._proxies = tuple(proxies)
        self.has_proxies = bool(self._proxies)

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
            if before is None:  # not an address: the proxy that forwarded it is the last known hop
                break
            address = before
            if not self._is_proxy(address):
                break
        return str(address)

    def is_proxy(self, peer: str) -> bool:
        """Whether `peer` is a trusted proxy."""
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


# Seconds after which a client may send to an overloaded process again.
_OVERLOADED_SECONDS: Final = 1.0
# Peers with a private address that forwarded requests although no proxies are configured.
_FORWARDERS_MAX: Final = 64


class Admission:
    """Charges each request to its client, once, before its operation runs."""

    def __init__(self, limiter: Limiter, addresses: ClientAddresses, overload: Overload) -> None:
        """Charge to `limiter`; `overload` selects the requests that an overloaded process refuses."""
        self._limiter = limiter
        self._addresses = addresses
        self.overload = overload
        self.turns = FairQueue()
        self.held = HeldBodies()
        self._forwarders: set[str] = set()

    def is_proxy(self, peer: str) -> bool:
        """Whether connections of `peer` carry the requests of many clients."""
        return peer in self._forwarders or self._addresses.is_proxy(peer)

    def client_names(self, peer: str) -> tuple[str, ...]:
        """The names by which connections from `peer` are counted: an IPv4 address; the /64 of an IPv6 one, its /48."""
        return self._limiter.client(peer).names

    def admit(self, request: Request, operation: Operation | None) -> None:
        """Charge a request before it is served. Raises `RateLimited` or `Overloaded`.

        Where an operation takes a credential, the code that checks the credential charges its wallet.
        """
        client = request.client = self._client(request)
        long = _units_of_head(request) if request.head_bytes_max > HEAD_BYTES_FREE else 0
        if operation is None:
            request.charge(client.client, READ.units + long)
            return
        cost = operation.cost
        if not cost.units:
            if long:
                request.owe(client.client, long)
            return
        if operation.takes_credential:
            request.wallet_units = cost.units + long
        elif cost.policy == "client":
            request.charge(client.client, cost.units + long)
        elif cost.policy == "health":
            request.charge(client.health, cost.units + long)
        else:
            request.charge(client.login if cost.policy == "login" else client.stop, 1)
            request.owe(client.client, cost.units + long)
        if self.overload.refuses(operation.sheds):
            self.overload.refused += 1
            request.wait_s = _OVERLOADED_SECONDS
            raise Overloaded("this process is overloaded; try again in a second")

    def charge_refused(self, request: Request) -> None:
        """Charge a request whose credential was refused. Raises `RateLimited` when the client's limit is used up."""
        request.wallet_units = 0
        request.charge(request.client.client, READ.units + _units_of_head(request))

    def owe(self, request: Request, operation: Operation, reply: Reply) -> Reply:
        """Charge the costs that are known after serving; long answers are charged while they are sent."""
        cost, key = operation.cost, request.wallet or request.client.client
        sent = len(reply.body) if isinstance(reply, Ready) else 0
        units = request.due_units + cost.owed(received=request.received, sent=sent)
        is_operator = operation.takes_credential and request.wallet is None
        if request.received > BODY_BYTES_FREE and not is_operator and not cost.counts_cpu:
            units += request.units_of_body()
        if units:
            request.owe(key, units)
        if cost.sent_bytes_per_unit and isinstance(reply, Streamed):
            return reply.counted(_Sent(request, key, cost.sent_bytes_per_unit).count)
        return reply

    def owe_long_read(self, client: str, nanoseconds: int) -> None:
        """Charge the client at an address for the time of a long read."""
        if units := max(nanoseconds - LONG_READ_NS_FREE, 0) // UNIT_NS:
            self._limiter.client(client).client.owe(units)

    def owe_unread(self, request: Request) -> None:
        """Charge a request that could not be read."""
        request.client = self._client(request)
        request.owe(request.client.client, READ.units)

    def _client(self, request: Request) -> Client:
        has_proxies = self._addresses.has_proxies
        if b"x-forwarded-for" not in request.named:
            return self._limiter.client(self._addresses.address(request) if has_proxies else request.peer)
        if has_proxies:
            if not self._addresses.is_proxy(request.peer):
                self._limiter.forwarder(request.peer)
            return self._limiter.client(self._addresses.address(request))
        client = self._limiter.forwarder(request.peer)
        if client is not self._limiter.client(request.peer) and len(self._forwarders) < _FORWARDERS_MAX:
            self._forwarders.add(request.peer)
        return client


def _units_of_head(request: Request) -> int:
    """Units for the length of the head."""
    size = len(request.path) + len(request.query) + sum(map(len, chain.from_iterable(request.fields)))
    return max(size - HEAD_BYTES_FREE, 0) // HEAD_BYTES_PER_UNIT


class _Sent:
    """Charges the bytes of an answer while they leave, in pieces of any length."""

    def __init__(self, request: Request, key: Key, per_unit: int) -> None:
        self._request = request
        self._key = key
        self._per_unit = per_unit
        self._bytes = 0

    def count(self, size: int) -> None:
        units, self._bytes = divmod(self._bytes + size, self._per_unit)
        if units:
            self._request.owe(self._key, units)
