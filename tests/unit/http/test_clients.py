"""Who a client is: the connection's address, and behind a trusted proxy what that says."""

from __future__ import annotations

import os
from contextlib import suppress
from ipaddress import ip_network

from each_row import each_row
from limitless import unlimited
from muniment.service.http.admission import ClientAddresses
from muniment.service.http.envelope import Envelope
from muniment.service.http.operation import Router, operation
from muniment.service.http.request import NO_BODY, ClientGone, Limits, Request
from muniment.service.running.limits.costs import READ, Shed
from muniment.service.running.metrics.recorder import Metrics

PROXIES = [ip_network("10.0.0.0/8"), ip_network("fd00::/8")]


def asked(peer: str, *forwarded: str, method: str = "GET") -> Request:
    fields = [(b"x-forwarded-for", each.encode("latin-1")) for each in forwarded]
    return Request(method, "/", b"", fields, NO_BODY, peer=peer, named=dict(fields), head_bytes_max=0)


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


@operation("GET", "/", cost=READ, sheds=Shed.READ)
async def get_root() -> None:
    pass


@operation("POST", "/", cost=READ, sheds=Shed.LATE)
async def fail() -> None:
    raise ClientGone


async def noted(method: str) -> list[str]:
    """Whose request with this method was noted as that of a writer."""
    writers: list[str] = []
    envelope = Envelope(
        Router([get_root, fail]), None, unlimited(),
        limits=Limits(1024, 5), metrics=Metrics.of_process(), random_bytes=os.urandom,
        addresses=ClientAddresses([]), note_writer=writers.append, observe=None,
    )  # fmt: skip
    with suppress(ClientGone):
        await envelope.respond(asked("192.0.2.1", method=method))
    return writers


async def test_a_writer_is_noted_before_the_answer_leaves_or_without_one() -> None:
    assert await noted("POST") == ["192.0.2.1"]
    assert [await noted(method) for method in ("GET", "HEAD", "OPTIONS")] == [[], [], []]
