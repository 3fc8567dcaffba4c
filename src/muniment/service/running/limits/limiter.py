"""The account of a request: an address, a wallet, or the proxy that forwards it."""

from __future__ import annotations

from functools import cached_property, lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import TYPE_CHECKING, Final

import structlog

from muniment.service.running.limits.buckets import Bucket, Joint, Key, Rate, Times, Unlimited
from muniment.service.running.limits.policies import STORED_BYTES_PER_UNIT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from muniment.service.running.limits.policies import Name, Policy

# Multiples of a policy's quota. One subscriber gets an IPv6 /64, but a /48 holds 65,536 of them, so it is counted too.
# Wallets cost nothing to make, so a charge to a wallet is charged to its address as well.
SITE_SCALE: Final = 16
WALLET_SCALE: Final = 4
SIGNED_SCALE: Final = 16
FORWARDER_SCALE: Final = 64

# Clients and wallets whose buckets are kept ready: about 1 KiB each. To make them takes ten microseconds.
_KEPT: Final = 4_096
_UNLIMITED: Final = Unlimited()
# Loopback, RFC 1918, RFC 4193 and link-local addresses (RFC 3927, RFC 4291 section 2.5.6).
_NEAR: Final = (
    *(IPv4Network(each) for each in ("127.0.0.0/8", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "169.254.0.0/16")),
    *(IPv6Network(each) for each in ("::1/128", "fc00::/7", "fe80::/10")),
)

# For the log, and for the operator who asks `/readyz`.
PROXY_NOTE: Final = "a proxy forwards requests and is not in trusted_proxies: all its clients share one rate limit"

_log = structlog.get_logger(__name__)


class Client:
    """The buckets of one address. A connection, or a proxy's request, keeps it.

    `client` counts the units of requests without a credential, `health` those about health, `login` log-ins, `stop`
    deactivations.
    """

    def __init__(self, limiter: Limiter, name: str, buckets: tuple[tuple[str, int], ...]) -> None:
        """`buckets` are names and scales, from the narrowest; empty: this client is not limited."""
        self.name = name
        # The names by which connections are counted: the client's, and for IPv6 the site's.
        self.names = (name, *(each for each, _ in buckets if each != name))
        self._limiter = limiter
        self._buckets = buckets

    @property
    def is_exempt(self) -> bool:
        """Whether the settings exempt this client."""
        return not self._buckets

    @cached_property
    def client(self) -> Key:
        """Units of requests that carry no valid credential."""
        return self._limiter.key("client", self._buckets)

    @cached_property
    def health(self) -> Key:
        """Units of health checks."""
        return self._limiter.key("client", tuple((f"health {name}", scale) for name, scale in self._buckets))

    @cached_property
    def login(self) -> Key:
        """Requests that log in."""
        return self._limiter.key("login", self._buckets)

    @cached_property
    def stop(self) -> Key:
        """Requests that deactivate."""
        return self._limiter.key("stop", self._buckets)

    def charge_stored(self, size: int) -> None:
        """Charge the address for `size` bytes of permanent records. Raises `RateLimited`.

        Wallets cost nothing to make, so their own limit does not bound what one client stores.
        """
        stored = self._limiter.key("owner", _wider("stored", self._buckets))
        if wait_ns := stored.charge(-(-size // STORED_BYTES_PER_UNIT)):
            raise stored.refusal(wait_ns)

    def signed(self, wallet: bytes) -> Key:
        """Units of requests with a valid token or API key of `wallet`, its 20 bytes.

        They are charged to the wallet, and to a second bucket of the address.
        """
        if not self._buckets:
            return _UNLIMITED
        return self._limiter.key("client", ((f"wallet {wallet.hex()}", WALLET_SCALE), *_wider("signed", self._buckets)))


class Limiter:
    """The rate limits of a service.

    `has_untrusted_proxy`: requests came through a proxy that is missing in the settings.
    """

    def __init__(
        self,
        policies: Mapping[Name, Policy | None],
        now_ns: Callable[[], int],
        *,
        exempt: Iterable[IPv4Network | IPv6Network] = (),
    ) -> None:
        """A policy that is missing in `policies`, or None, sets no limit. `exempt` networks have no limits.

        `now_ns` is a clock that only goes forward.
        """
        self.has_untrusted_proxy = False
        self._policies: dict[Name, Policy] = {name: policy for name, policy in policies.items() if policy is not None}
        self._times: dict[Name, Times] = {name: Times() for name in self._policies}
        self._now_ns = now_ns
        self._exempt = tuple(exempt)
        self._rate = lru_cache(maxsize=None)(self._make_rate)
        self._rates: dict[Name, list[Rate]] = {name: [] for name in self._policies}
        self.client: Callable[[str], Client] = lru_cache(maxsize=_KEPT)(self._make_client)
        self.forwarder: Callable[[str], Client] = lru_cache(maxsize=_KEPT)(self._make_forwarder)
        self.key: Callable[[Name, tuple[tuple[str, int], ...]], Key] = lru_cache(maxsize=_KEPT)(self._make_key)

    def owner(self, wallet: bytes) -> Key:
        """The limit on the triggers and functions that `wallet`, its 20 bytes, adds."""
        return self.key("owner", ((f"wallet {wallet.hex()}", 1),))

    def _make_client(self, address: str) -> Client:
        parsed = _parsed(address)
        if parsed is not None and any(parsed in network for network in self._exempt):
            return Client(self, address, ())
        return Client(self, _client_name(parsed), _buckets(parsed))

    def _make_forwarder(self, peer: str) -> Client:
        """The client for a `peer` that sends `X-Forwarded-For` while no proxy is trusted.

        A loopback or private address is a proxy that is missing in the settings: all its clients share one wide bucket.
        The first one is logged, and `/readyz` notes that there is one. Any other peer is an ordinary client.
        """
        parsed = _parsed(peer)
        client = self.client(peer)
        if parsed is None or not _is_near(parsed) or any(parsed in network for network in self._exempt):
            return client
        if not self.has_untrusted_proxy:
            self.has_untrusted_proxy = True
            _log.warning(PROXY_NOTE, proxy=peer)
        return Client(self, client.name, ((f"forwarder {client.name}", FORWARDER_SCALE),))

    def _make_key(self, name: Name, buckets: tuple[tuple[str, int], ...]) -> Key:
        if not buckets or name not in self._policies:
            return _UNLIMITED
        narrow, *wider = [
            (self._times[name], bucket, self._rate(name, scale), self._now_ns) for bucket, scale in buckets
        ]
        return Joint(*narrow, [Bucket(*each) for each in wider]) if wider else Bucket(*narrow)

    def _make_rate(self, name: Name, scale: int) -> Rate:
        made = Rate(self._policies[name], scale)
        self._rates[name].append(made)
        return made

    def units_charged(self, name: Name) -> int:
        """The units that this process has charged under a policy; 0 if the policy is off."""
        return sum(rate.units for rate in self._rates.get(name, ()))

    def refused(self, name: Name) -> int:
        """The requests that this process has refused under a policy."""
        return sum(rate.refused for rate in self._rates.get(name, ()))


def _parsed(address: str) -> IPv4Address | IPv6Address | None:
    """An address; None for other text, such as the empty peer of a local socket. IPv4 inside IPv6 is IPv4."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return None
    return (parsed.ipv4_mapped or parsed) if isinstance(parsed, IPv6Address) else parsed


def _is_near(address: IPv4Address | IPv6Address) -> bool:
    """Whether the address is local or private; `is_private` is also true of Teredo's public tunnels."""
    return any(address in network for network in _NEAR)


def _client_name(address: IPv4Address | IPv6Address | None) -> str:
    """The name by which connections of one client are counted: an IPv4 address, the /64 of an IPv6 one."""
    if address is None:
        return "local"
    if isinstance(address, IPv4Address):
        return str(address)
    return f"{IPv6Address(int(address) >> 64 << 64)}/64"


def _buckets(address: IPv4Address | IPv6Address | None) -> tuple[tuple[str, int], ...]:
    """The buckets of an address and the scale of each: one for IPv4, two for IPv6."""
    buckets = ((_client_name(address), 1),)
    if isinstance(address, IPv6Address):
        site = IPv6Address(int(address) >> 80 << 80)
        buckets += ((f"{site}/48", SITE_SCALE),)
    return buckets


def _wider(use: str, buckets: tuple[tuple[str, int], ...]) -> tuple[tuple[str, int], ...]:
    """The second buckets of an address, for all of its wallets."""
    return tuple(
        (f"{use} {name}", scale if scale == FORWARDER_SCALE else scale * SIGNED_SCALE) for name, scale in buckets
    )
