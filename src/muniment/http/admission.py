"""Whether a request is served now: the limits of its client, and the load of the process."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from muniment.errors import Overloaded
from muniment.http.paging import LIMIT_MAX, OFFSET_QUICK_MAX
from muniment.limits.costs import LONG_READ, READ
from muniment.limits.held import HeldBodies
from muniment.limits.turns import Turns

if TYPE_CHECKING:
    from muniment.http.clients import ClientAddresses
    from muniment.http.operation import Operation
    from muniment.http.reply import Reply
    from muniment.http.request import Request
    from muniment.limits.limiter import Client, Limiter
    from muniment.limits.overload import Overload

# Seconds after which a client may send to an overloaded process again.
_OVERLOADED_SECONDS: Final = 1.0
_LIMIT: Final = re.compile(rb"(?:^|&)limit=([0-9]{1,3})(?:&|$)")
_OFFSET: Final = re.compile(rb"(?:^|&)offset=([0-9]{1,20})(?:&|$)")
# Peers with a private address that forwarded requests although no proxy is trusted.
_FORWARDERS_MAX: Final = 64


class Admission:
    """The gate before the operations: it charges each request to its client, once."""

    def __init__(self, limiter: Limiter, addresses: ClientAddresses, overload: Overload) -> None:
        """Charge to `limiter`; `overload` decides which requests an overloaded process refuses."""
        self._limiter = limiter
        self._addresses = addresses
        self.overload = overload
        self.turns = Turns()
        self.held = HeldBodies()
        self._forwarders: set[str] = set()

    def is_proxy(self, peer: str) -> bool:
        """Whether connections of `peer` carry the requests of many clients."""
        return peer in self._forwarders or self._addresses.is_proxy(peer)

    def client_name(self, peer: str) -> str:
        """The name by which connections from `peer` are counted: an IPv4 address, the /64 of an IPv6 one."""
        return self._limiter.client(peer).name

    def admit(self, request: Request, operation: Operation | None) -> None:
        """Charge a request before it is served. Raises `RateLimited` or `Overloaded`.

        Where an operation takes a credential, the code that checks the credential charges its wallet.
        """
        client = request.client = self._client(request)
        if operation is None:
            request.charge(client.client, READ.units)
            return
        cost = operation.cost
        if not cost.units:
            return
        if operation.takes_credential:
            request.wallet_units = cost.units
        elif cost.policy == "client":
            request.charge(client.client, cost.units)
        else:
            request.charge(client.login if cost.policy == "login" else client.stop, 1)
            request.owe(client.client, cost.units)
        if self.overload.refuses(operation.sheds, by_offset=b"offset=" in request.query):
            self.overload.refused += 1
            request.wait_s = _OVERLOADED_SECONDS
            raise Overloaded("this process is overloaded; try again in a second")

    def charge_refused(self, request: Request) -> None:
        """Charge a request whose credential was refused. Raises `RateLimited` when the client's limit is used up."""
        request.wallet_units = 0
        request.charge(request.client.client, READ.units)

    def owe(self, request: Request, operation: Operation, reply: Reply) -> Reply:
        """Charge the costs that are known only now; those of a long answer are charged while it is sent."""
        cost, key = operation.cost, request.wallet or request.client.client
        is_operator = operation.takes_credential and request.wallet is None
        if not is_operator and not cost.counts_cpu and (units := request.units_of_body()):
            request.owe(key, units)
        if cost.records_per_unit and request.query:
            units = cost.owed(records=min(_number(_LIMIT, request.query), LIMIT_MAX))
            if _number(_OFFSET, request.query) > OFFSET_QUICK_MAX:
                units += LONG_READ
            if units:
                request.owe(key, units)
        elif cost.received_bytes_per_unit:
            request.owe(key, cost.owed(received=request.received))
        elif cost.sent_bytes_per_unit:
            return reply.counted(lambda size: request.owe(key, cost.owed(sent=size)))
        return reply

    def owe_unread(self, request: Request) -> None:
        """Charge a request that could not be read."""
        request.client = self._client(request)
        request.owe(request.client.client, READ.units)

    def _client(self, request: Request) -> Client:
        if b"x-forwarded-for" not in request.named:
            return self._limiter.client(self._addresses.address(request))
        if self._addresses.has_proxies:
            address = self._addresses.address(request)
            if address == request.peer:  # this peer is in no trusted network
                self._limiter.forwarder(address)
            return self._limiter.client(address)
        client = self._limiter.forwarder(request.peer)
        if client is not self._limiter.client(request.peer) and len(self._forwarders) < _FORWARDERS_MAX:
            self._forwarders.add(request.peer)
        return client


def _number(form: re.Pattern[bytes], query: bytes) -> int:
    """The first number of this form in a query, 0 without one. Malformed queries are refused elsewhere."""
    found = form.search(query)
    return int(found[1]) if found else 0
