"""Look-ups in threads of a client's own, while some name servers are silent."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Generator
from typing import Any

import pytest

from muniment.outgoing import Outgoing, Unreachable, connections


class Resolver:
    """The system's resolver. A name that begins with `silent` is found when `answers` is set; `no` is not found."""

    def __init__(self) -> None:
        self.answers = threading.Event()
        self.asked: list[str] = []

    def __call__(self, host: str, port: int, *_: Any, **__: Any) -> list[Any]:
        self.asked.append(host)
        if host.startswith("silent"):
            assert self.answers.wait(60)
        if host == "no":
            raise socket.gaierror
        return [(0, 0, 0, "", (address, port)) for address in ("93.184.216.34", "fe80::1%lo", "93.184.216.34")]


@pytest.fixture
def resolver(monkeypatch: pytest.MonkeyPatch) -> Generator[Resolver]:
    made = Resolver()
    monkeypatch.setattr(socket, "getaddrinfo", made)
    monkeypatch.setattr(connections, "LOOKUP_SECONDS_MAX", 60)
    yield made
    made.answers.set()


async def until_asked(resolver: Resolver, count: int) -> None:
    async with asyncio.timeout(60):
        while len(resolver.asked) < count:
            await asyncio.sleep(0.01)


async def outcome(outgoing: Outgoing, host: str) -> str:
    """The reason for which a request fails; `forbidden-address` when the name was found."""
    with pytest.raises(Unreachable) as refusal:
        await outgoing.deliver(f"https://{host}/", (), b"", seconds_max=60, bytes_max=1)
    return refusal.value.reason


async def test_silent_names_of_one_client_hold_up_no_name_of_another_and_no_thread_of_the_loop(
    resolver: Resolver,
) -> None:
    async with Outgoing(allow_private=False, lookup_threads=2) as one, Outgoing(allow_private=False) as other:
        silent = [asyncio.create_task(outcome(one, f"silent{number}")) for number in range(40)]
        await until_asked(resolver, 2)
        assert await outcome(other, "quick") == "forbidden-address"
        assert await asyncio.to_thread(lambda: 7) == 7
        assert resolver.asked == ["silent0", "silent1", "quick"]
        resolver.answers.set()
        assert [await each for each in silent] == ["forbidden-address"] * 40
        assert await outcome(one, "no") == "unknown-host"


async def test_a_silent_name_leaves_the_other_threads_to_quick_ones(resolver: Resolver) -> None:
    async with Outgoing(allow_private=False, lookup_threads=2) as outgoing:
        silent = asyncio.create_task(outcome(outgoing, "silent"))
        await until_asked(resolver, 1)
        for number in range(5):
            assert await outcome(outgoing, f"quick{number}") == "forbidden-address"
        resolver.answers.set()
        assert await silent == "forbidden-address"


async def test_a_silent_name_delays_no_caller_for_long_and_a_look_up_without_a_caller_never_begins(
    resolver: Resolver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "LOOKUP_SECONDS_MAX", 0.05)
    async with Outgoing(allow_private=False, lookup_threads=2) as outgoing:
        silent = await asyncio.gather(*(outcome(outgoing, f"silent{number}") for number in range(6)))
        assert silent == ["unknown-host"] * 6
        assert await outcome(outgoing, "quick") == "unknown-host"  # both threads still wait
        monkeypatch.setattr(connections, "LOOKUP_SECONDS_MAX", 60)
        resolver.answers.set()
        assert await outcome(outgoing, "later") == "forbidden-address"
    assert resolver.asked == ["silent0", "silent1", "later"]
