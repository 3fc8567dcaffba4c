"""Look-ups of names that strangers chose, while some name servers are silent."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Generator
from typing import Any

import pytest

from muniment.outgoing import Lookups, OnBehalf, Outgoing, StrangersLookups, Unreachable, lookups as lookups_module


class Resolver:
    """The system's resolver. A name that begins with `silent` is found when `answers` is set; `no` is not found."""

    def __init__(self) -> None:
        self.answers = threading.Event()
        self.asked: list[str] = []
        self.silent: set[str] = set()

    def __call__(self, host: str, port: int, **_: Any) -> list[Any]:
        self.asked.append(host)
        if host.startswith("silent") or host in self.silent:
            assert self.answers.wait(60)
        if host == "no":
            raise socket.gaierror
        return [(0, 0, 0, "", (address, port)) for address in ("93.184.216.34", "fe80::1%lo", "93.184.216.34")]


@pytest.fixture
def resolver(monkeypatch: pytest.MonkeyPatch) -> Generator[Resolver]:
    made = Resolver()
    monkeypatch.setattr(socket, "getaddrinfo", made)
    monkeypatch.setattr(lookups_module, "SECONDS_MAX", 60)
    yield made
    made.answers.set()


async def until_asked(resolver: Resolver, count: int) -> None:
    async with asyncio.timeout(60):
        while len(resolver.asked) < count:
            await asyncio.sleep(0.01)


async def found(lookups: Lookups, host: str, asker: str) -> list[str] | str:
    try:
        return await lookups.find(host, 443, asker)
    except Unreachable as error:
        return error.reason


async def test_a_name_has_its_addresses_or_none(resolver: Resolver) -> None:
    del resolver
    lookups = Lookups(2, 1)
    assert await found(lookups, "yes", "a") == ["93.184.216.34", "fe80::1"]
    assert await found(lookups, "no", "a") == "unknown-host"
    lookups.close()


async def test_an_asker_whose_names_are_silent_leaves_threads_to_others(resolver: Resolver) -> None:
    lookups = Lookups(3, 2)
    held = [asyncio.create_task(found(lookups, f"silent{number}", "a")) for number in range(8)]
    await until_asked(resolver, 2)
    for number in range(20):
        assert await found(lookups, f"quick{number}", "b") == ["93.184.216.34", "fe80::1"]
    assert sorted(name for name in resolver.asked if name.startswith("silent")) == ["silent0", "silent1"]
    resolver.answers.set()
    assert await asyncio.gather(*held) == [["93.184.216.34", "fe80::1"]] * 8
    lookups.close()


async def test_askers_take_turns(resolver: Resolver) -> None:
    lookups = Lookups(1, 1)
    first = asyncio.create_task(found(lookups, "silent", "a"))
    await until_asked(resolver, 1)
    wanted = [("a1", "a"), ("a2", "a"), ("a3", "a"), ("b1", "b"), ("b2", "b"), ("c1", "c")]
    others = [asyncio.create_task(found(lookups, host, asker)) for host, asker in wanted]
    await asyncio.sleep(0)
    resolver.answers.set()
    await asyncio.gather(first, *others)
    assert resolver.asked == ["silent", "a1", "b1", "c1", "a2", "b2", "a3"]
    lookups.close()


async def test_a_silent_name_delays_no_caller_for_long_and_its_thread_counts_until_it_ends(
    resolver: Resolver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lookups_module, "SECONDS_MAX", 0.05)
    lookups = Lookups(4, 2)
    tried = await asyncio.gather(*(found(lookups, f"silent{number}", "a") for number in range(6)))
    assert tried == ["unknown-host"] * 6
    assert await found(lookups, "quick", "a") == "unknown-host"  # both threads of this asker still wait
    await until_asked(resolver, 2)
    assert sorted(resolver.asked) == ["silent0", "silent1"]
    resolver.answers.set()
    monkeypatch.setattr(lookups_module, "SECONDS_MAX", 60)
    assert await found(lookups, "quick", "a") == ["93.184.216.34", "fe80::1"]
    assert resolver.asked[2:] == ["quick"]
    lookups.close()


async def test_a_name_that_was_known_is_not_waited_for(resolver: Resolver, monkeypatch: pytest.MonkeyPatch) -> None:
    """While all threads are held, receivers that were found before get their events."""
    lookups = Lookups(1, 1)
    known = await found(lookups, "honest", "b")
    monkeypatch.setattr(lookups_module, "KNOWN_SECONDS_MAX", 0.05)
    held = asyncio.create_task(found(lookups, "silent", "a"))
    await until_asked(resolver, 2)
    assert await found(lookups, "honest", "b") == known
    assert resolver.asked == ["honest", "silent"]
    resolver.answers.set()
    await held
    resolver.silent.add("honest")
    resolver.answers.clear()
    assert await found(lookups, "honest", "b") == known
    lookups.close()


async def test_trials_hold_no_look_up_of_other_requests(resolver: Resolver) -> None:
    strangers = StrangersLookups(usual=Lookups(1, 1), trials=Lookups(2, 1))
    async with Outgoing(allow_private=False, lookups=strangers) as outgoing:

        async def outcome(host: str, asker: str, *, is_trial: bool) -> str:
            with pytest.raises(Unreachable) as refusal:
                await outgoing.deliver(
                    f"https://{host}/", (), b"{}",
                    seconds_max=60, bytes_max=1, whose=OnBehalf(asker, is_trial=is_trial),
                )  # fmt: skip
            return refusal.value.reason

        held = [asyncio.create_task(outcome(f"silent{name}", name, is_trial=True)) for name in "abc"]
        await until_asked(resolver, 2)
        assert await outcome("quick", "d", is_trial=False) == "forbidden-address"  # it was found, and has fe80::1
        assert (sorted(resolver.asked[:2]), resolver.asked[2:]) == (["silenta", "silentb"], ["quick"])
        resolver.answers.set()
        assert await asyncio.gather(*held) == ["forbidden-address"] * 3
