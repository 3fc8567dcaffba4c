"""Who a client is: the connection's address, and behind a trusted proxy what that says."""

from __future__ import annotations

from ipaddress import ip_network
from typing import Any

import pytest
from starlette.types import Message, Receive, Scope, Send

from muniment.http.clients import Clients, NotesWriters

PROXIES = [ip_network("10.0.0.0/8"), ip_network("fd00::/8")]


def scope(peer: str | None, *forwarded: str, method: str = "GET") -> dict[str, Any]:
    headers = [(b"x-forwarded-for", each.encode("latin-1")) for each in forwarded]
    client = None if peer is None else (peer, 1)
    return {"type": "http", "method": method, "client": client, "headers": headers}


@pytest.mark.parametrize(
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
        (None, ["1.1.1.1"], ""),
    ],
)
def test_an_address_is_believed_as_far_as_the_proxies_are(peer: str, forwarded: list[str], address: str) -> None:
    assert Clients(PROXIES).address(scope(peer, *forwarded)) == address


def test_without_trusted_proxies_nobody_is_believed() -> None:
    assert Clients([]).address(scope("10.0.0.1", "1.1.1.1")) == "10.0.0.1"


@pytest.mark.parametrize(
    ("method", "noted"), [("POST", ["start"]), ("PUT", ["start"]), ("GET", []), ("HEAD", []), ("OPTIONS", [])]
)
async def test_a_writer_is_noted_before_the_answer_leaves(method: str, noted: list[str]) -> None:
    events: list[str] = []

    async def answer(_scope: Scope, _receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 204, "headers": []})

    async def send(_: Message) -> None:
        events.append("start")

    layer = NotesWriters(answer, Clients([]), events.append)
    await layer(scope("192.0.2.1", method=method), None, send)  # type: ignore[arg-type] - nothing is received
    assert events == (["192.0.2.1", *noted, "192.0.2.1"] if noted else ["start"])


async def test_a_writer_whose_answer_never_left_is_noted() -> None:
    async def crash(_scope: Scope, _receive: Receive, _send: Send) -> None:
        raise ConnectionError

    noted: list[str] = []
    layer = NotesWriters(crash, Clients([]), noted.append)
    with pytest.raises(ConnectionError):
        await layer(scope("192.0.2.1", method="POST"), None, None)  # type: ignore[arg-type] - nothing is received or sent
    assert noted == ["192.0.2.1"]
