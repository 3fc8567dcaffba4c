"""Which addresses a request may go to."""

from __future__ import annotations

import ipaddress
from typing import Final, TypeAlias

_NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")  # a translator sends it on to IPv4 (RFC 6052 section 2.1)
# Blocks that Python's releases differ on, or take for global: protocol assignments (RFC 6890, 2928), translation (RFC
# 8215, 2765), documentation (9637), site-local (3879), segments (9602), IPv4 in IPv6 (4291 section 2.5.5.1).
_SPECIAL: Final = tuple(map(ipaddress.ip_network, (
    "192.0.0.0/24", "2001::/23", "64:ff9b:1::/48", "::ffff:0:0:0/96", "3fff::/20", "fec0::/10", "5f00::/16", "::/96",
)))  # fmt: skip
IPAddress: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address


def is_public(address: IPAddress) -> bool:
    """Whether a request may go to `address`: not private, loopback, link-local, multicast, or a disguise of one."""
    if isinstance(address, ipaddress.IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour
        if inner is None and address in _NAT64:
            inner = ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)
        if inner is not None:
            return is_public(inner)
    return address.is_global and not address.is_multicast and not any(address in block for block in _SPECIAL)
