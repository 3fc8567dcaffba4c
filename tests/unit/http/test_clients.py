"""Who a client is: the connection's address, and behind a trusted proxy what that says."""

from __future__ import annotations

from ipaddress import ip_network

from each_row import each_row
from muniment.service.http.admission import ClientAddresses
from muniment.service.http.request import NO_BODY, Request

PROXIES = [ip_network("10.0.0.0/8"), ip_network("fd00::/8")]


def asked(peer: str, *forwarded: str) -> Request:
    fields = [(b"x-forwarded-for", each.encode("latin-1")) for each in forwarded]
    return Request("GET", "/", b"", fields, NO_BODY, peer=peer, named=dict(fields), head_bytes_max=0)


@each_row(
    ("peer", "forwarded", "address"),
    [
        ("10.0.0.1", ["203.0.113.7"], "203.0.113.7"),
        ("10.0.0.1", [], "10.0.0.1"),
        ("10.0.0.1", ["1.1.1.1, 203.0.113.7"], "203.0.113.7"),
        ("10.0.0.1", ["1.1.1.1, 203.0.113.7, 10.2.3.4"], "203.0.113.7"),
        ("10.0.0.1", ["1.1.1.1", "203.0.113.7"], "203.0.113.7"),
        ("10.0.0.1", ["10.9.9.9, 10.8.8.8"], "10.9.9.9"),
        ("10.0.0.1", ["203.0.113.7:4711"], "203.0.113.7"),
        ("fd00::1", ["[2001:db8::7]:4711"], "2001:db8::7"),
        ("::ffff:10.0.0.1", ["::ffff:203.0.113.7"], "203.0.113.7"),
        ("10.0.0.1", ["203.0.113.7, nonsense"], "10.0.0.1"),
        ("10.0.0.1", ["203.0.113.7, nonsense, 10.2.3.4"], "10.2.3.4"),
        ("10.0.0.1", ["", ","], "10.0.0.1"),
        ("10.0.0.1", [f"1.1.1.1, {'7' * 30_000}"], "10.0.0.1"),
        ("203.0.113.9", ["1.1.1.1"], "203.0.113.9"),
        ("::ffff:203.0.113.9", ["1.1.1.1"], "203.0.113.9"),
        ("", ["1.1.1.1"], ""),
    ],
)
def test_an_address_is_believed_as_far_as_the_proxies_are(peer: str, forwarded: list[str], address: str) -> None:
    assert ClientAddresses(PROXIES).address(asked(peer, *forwarded)) == address


def test_without_trusted_proxies_nobody_is_believed() -> None:
    assert ClientAddresses([]).address(asked("10.0.0.1", "1.1.1.1")) == "10.0.0.1"
