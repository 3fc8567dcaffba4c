"""Refusals for rate limits are sent late, with the connection unread, where there is room to wait."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from wires import GET, Answers, Wire, shared, turns

from each_row import each_row
from limitless import unlimited
from muniment.service.http.reply import Ready, Reply
from muniment.service.http.request import Request
from muniment.service.running.limits.overload import delay_seconds


def limiting(wait_s: float) -> Answers:
    async def respond(request: Request) -> Reply:
        request.client = SimpleNamespace(name=request.peer)  # type: ignore[assignment] - its name is all that is asked
        request.wait_s = wait_s
        return Ready(b"{}", status=429)

    return Answers(respond)


async def test_a_refusal_is_delayed_and_the_connection_is_not_read_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    wire = Wire(limiting(0.1), chance=lambda: 0.5)
    slept, is_over, sleep = list[float](), asyncio.Event(), asyncio.sleep

    async def sleep_until_told(seconds: float) -> None:
        if seconds:
            slept.append(seconds)
            await is_over.wait()
        else:
            await sleep(0)

    monkeypatch.setattr(asyncio, "sleep", sleep_until_told)
    wire.send(GET)
    await turns()
    assert (wire.transport.written, wire.transport.is_paused) == ([], True)
    assert slept == [delay_seconds(0.1, lambda: 0.5)]
    is_over.set()
    await turns()
    assert (wire.transport.statuses, wire.transport.is_paused) == ([429], False)


@each_row(("is_proxied", "room"), [(True, 8), (False, 1)])
async def test_without_room_a_refusal_leaves_immediately(
    monkeypatch: pytest.MonkeyPatch, *, is_proxied: bool, room: int
) -> None:
    sleep = asyncio.sleep
    monkeypatch.setattr(asyncio, "sleep", lambda seconds: sleep(3_600 if seconds else 0))
    together: Any = shared(
        limiting(60), chance=lambda: 0.5, is_proxy=lambda _: is_proxied, connections_max=4 if not is_proxied else 12
    )
    wires = [Wire(None, shared=together) for _ in range(4 if not is_proxied else 12)]
    for wire in wires:
        wire.send(GET)
    await turns()
    assert [wire.transport.statuses for wire in wires] == [[]] * room + [[429]] * (len(wires) - room)
    for wire in wires:
        wire.lose()
        for task in wire.tasks:
            task.cancel()
    await turns()
    assert together.delayed.count == 0


async def test_a_connection_is_counted_under_the_name_of_its_client() -> None:
    admission = unlimited()
    together = shared(limiting(0), connections_per_client_max=1, client_names=admission.client_names)
    peers = ["2001:db8::1", "2001:db8::2", "2001:db8:0:1::1", "192.0.2.1", "::ffff:192.0.2.1"]
    refused = [Wire(None, shared=together, peer=peer).transport.is_aborted for peer in peers]
    assert refused == [False, True, False, False, True]


async def test_the_connections_of_all_networks_of_an_ipv6_site_have_a_limit_too() -> None:
    """A /48 has 65,536 networks of one client each; together they have four times what a client has."""
    together = shared(limiting(0), connections_per_client_max=2, client_names=unlimited().client_names)
    wires = [Wire(None, shared=together, peer=f"2001:db8:0:{number // 2}::1") for number in range(10)]
    assert [each.transport.is_aborted for each in wires] == [False] * 8 + [True] * 2
    assert not Wire(None, shared=together, peer="2001:db8:1::1").transport.is_aborted, "another site"
    wires[0].lose()
    assert not Wire(None, shared=together, peer="2001:db8:0:9::1").transport.is_aborted
