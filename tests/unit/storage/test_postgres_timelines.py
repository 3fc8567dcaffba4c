"""Of several hosts that take writes, the one on the latest timeline is used: the others were primaries before it."""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Iterator
from contextlib import contextmanager

import pytest

from muniment.protocol.errors import DatabaseUnavailable
from muniment.service.storage.postgres import slot as slots
from muniment.service.storage.postgres.connection import Connection
from muniment.service.storage.postgres.slot import Connector, Slot
from postgres import Cluster


@pytest.fixture(scope="module")
def servers() -> Iterator[tuple[Cluster, Cluster]]:
    """A primary whose standby was promoted, while the primary still takes writes; and that standby."""
    with Cluster() as earlier, earlier.replica() as later:
        later.promote()
        yield earlier, later


def connector_of(*clusters: Cluster) -> Connector:
    hosts = ",".join(f"127.0.0.1:{each.port}" for each in clusters)
    return Connector(f"postgresql://muniment@{hosts}/postgres?target_session_attrs=read-write")


@contextmanager
def all_answer(monkeypatch: pytest.MonkeyPatch) -> Generator[None]:
    """The answers of all hosts are waited for, until the end of the block."""
    with monkeypatch.context() as patched:
        patched.setattr(slots, "OTHERS_SECONDS_MAX", 60.0)
        yield


async def port_of(connection: Connection) -> int:
    ((port,),) = await connection.fetch("SELECT inet_server_port()")
    return port


@pytest.mark.parametrize("is_first", [True, False], ids=["named first", "named second"])
async def test_the_later_primary_is_used_wherever_the_url_names_it(
    servers: tuple[Cluster, Cluster], monkeypatch: pytest.MonkeyPatch, *, is_first: bool
) -> None:
    earlier, later = servers
    slot = Slot(connector_of(later, earlier) if is_first else connector_of(earlier, later))
    with all_answer(monkeypatch):
        assert await port_of(await slot.open()) == later.port
    await slot.close()


async def test_an_earlier_primary_is_refused_while_the_later_one_is_silent(
    servers: tuple[Cluster, Cluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    earlier, later = servers
    connector = connector_of(earlier, later)
    with all_answer(monkeypatch):
        (await connector.connect()).terminate()
    later.pause()
    try:
        with pytest.raises(DatabaseUnavailable, match="only a standby or an earlier primary answers"):
            await connector.connect()
    finally:
        later.resume()


async def test_a_connection_to_a_host_that_was_left_is_made_again(
    servers: tuple[Cluster, Cluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    earlier, later = servers
    connector = connector_of(earlier, later)
    slot, other = Slot(connector), Slot(connector)
    later.pause()
    try:
        assert await port_of(await slot.open()) == earlier.port  # nothing tells that there is a later one
    finally:
        later.resume()
    with all_answer(monkeypatch):
        assert await port_of(await other.open()) == later.port
        assert await port_of(await slot.open()) == later.port
    for each in (slot, other):
        await each.close()


async def test_a_connection_that_waited_while_a_later_primary_was_found_is_refused(
    servers: tuple[Cluster, Cluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    earlier, later = servers
    connector = connector_of(earlier, later)
    later.pause()
    begun, ended = asyncio.Event(), asyncio.Event()

    async def has_own_session(_connection: Connection, _url: str) -> bool:
        begun.set()
        return await ended.wait()

    monkeypatch.setattr(slots, "has_own_session", has_own_session)  # the look for a pooler, which takes a while
    waiting = asyncio.create_task(connector.connect())
    await asyncio.wait_for(begun.wait(), 60)
    later.resume()
    connector._timeline = 2  # as another task leaves it
    ended.set()
    with pytest.raises(DatabaseUnavailable, match="only a standby or an earlier primary answers"):
        await waiting
