"""Limits of streams: their number, clients that do not read, and the stop of the service."""

from __future__ import annotations

import asyncio
import os
import resource
import time
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from event_stream import EventStream
from streams_world import Connect, Start, add, client, connect, gauge, start, until_gauge

__all__ = ["client", "connect", "start"]  # the fixtures

MIB = 2**20


async def test_a_stream_over_a_limit_ends_at_once_with_a_retry(
    start: Start, connect: Connect, client: httpx2.AsyncClient
) -> None:
    site = start(MUNIMENT_FEED_STREAMS_PER_CLIENT_MAX="2", MUNIMENT_FEED_STREAMS_MAX="3")
    url = site.urls[0]
    mine = [await connect(url) for _ in range(2)]
    for stream in mine:
        await stream.block()
    over = await connect(url)
    (last,) = await over.rest()
    assert (over.status, last.fields.keys()) == (200, {"", "retry"})
    assert 20_000 <= last.retry_ms <= 40_000
    other = await connect(url, address="127.0.0.2")
    assert (await other.block()).id
    full = await connect(url, address="127.0.0.3")
    assert (await full.rest())[0].retry_ms >= 20_000
    await mine[0].close()
    await until_gauge(client, url, "feed_streams", 2)
    assert (await (await connect(url)).block()).id


async def test_an_unknown_proxy_has_no_limit_of_a_single_client(start: Start, connect: Connect) -> None:
    url = start(MUNIMENT_FEED_STREAMS_PER_CLIENT_MAX="1").urls[0]
    forwarded = [await connect(url, fields=f"x-forwarded-for: 192.0.2.{number}\r\n") for number in range(4)]
    assert [(await stream.block()).fields.keys() for stream in forwarded] == [{"retry", "id"}] * 4
    assert (await (await connect(url)).block()).fields.keys() == {"retry", "id"}
    assert "" in (await (await connect(url)).block()).fields, "over the limit"


async def test_a_stream_over_the_rate_limit_ends_at_once_with_a_retry(start: Start, connect: Connect) -> None:
    url = start(MUNIMENT_RATE_LIMIT_CLIENT="100/3600s").urls[0]
    begun = [await connect(url) for _ in range(2)]
    assert [(await stream.block()).fields.keys() for stream in begun] == [{"retry", "id"}] * 2
    over = await connect(url)
    (last,) = await over.rest()
    assert (over.status, last.fields.keys()) == (200, {"", "retry"})
    assert 20_000 <= last.retry_ms <= 40_000


async def test_open_streams_are_counted_as_streams_and_not_as_requests_in_flight(
    start: Start, connect: Connect, client: httpx2.AsyncClient
) -> None:
    site = start(MUNIMENT_FEED_STREAMS_PER_CLIENT_MAX="50")
    url = site.urls[0]
    streams = [await connect(url) for _ in range(50)]
    for stream in streams:
        await stream.block()
    assert await gauge(client, url, "feed_streams") == 50
    assert await gauge(client, url, "http_requests_in_flight") == 1, "the scrape itself"
    for stream in streams:
        await stream.close()
    await until_gauge(client, url, "feed_streams", 0)


@pytest.mark.timed
async def test_unread_streams_use_little_memory_delay_no_others_and_are_aborted(
    start: Start, connect: Connect, client: httpx2.AsyncClient
) -> None:
    """The time for reading, a minute, is five seconds in this program."""
    site = start(MUNIMENT_FEED_STREAMS_PER_CLIENT_MAX="400", MUNIMENT_FEED_STREAMS_MAX="400")
    url, pid = site.urls[0], site.services[0].pid
    readers = [await connect(url) for _ in range(200)]
    before = await asyncio.to_thread(resident_bytes, pid)
    stalled = [await connect(url, receive_bytes=2_048) for _ in range(100)]
    for stream in (*readers, *stalled):
        await stream.block()
    for stream in stalled:
        stream.writer.transport.pause_reading()  # pyright: ignore[reportAttributeAccessIssue] - a transport of a socket
    waits: list[float] = []
    most = before
    for _ in range(10):  # 600 events: a quarter of a megabyte for each stream
        await add(site, 60)
        begun = time.monotonic()
        await asyncio.gather(*(read_events(stream, 60) for stream in readers))
        waits.append(time.monotonic() - begun)
        most = max(most, resident_bytes(pid))
    assert max(waits) < 5, "200 clients that read 60 events each, in this one process"
    assert most - before < 60 * MIB, "100 streams of 64 KiB and a piece, and the events in memory"
    await until_gauge(client, url, "feed_streams_aborted_total", 100)
    assert await gauge(client, url, "feed_streams") == 200
    await add(site, 1)
    await asyncio.gather(*(read_events(stream, 1) for stream in readers))


async def read_events(stream: EventStream, count: int) -> None:
    for _ in range(count):
        await stream.event()


def resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.fixture
def descriptors() -> Iterator[None]:
    """Many files for this process: many systems give it 1,024 unless it asks for more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.timed
@pytest.mark.usefixtures("descriptors")
async def test_at_sigterm_1000_streams_end_within_the_delay(start: Start, connect: Connect) -> None:
    site = start(MUNIMENT_SHUTDOWN_DELAY_S="3", MUNIMENT_FEED_STREAMS_PER_CLIENT_MAX="250")
    streams = [await connect(site.urls[0], address=f"127.0.0.{2 + number % 4}") for number in range(1_000)]
    for stream in streams:
        await stream.block()
    process = site.services[0].process
    assert process is not None
    begun = time.monotonic()
    process.terminate()

    async def end(stream: EventStream) -> tuple[float, int]:
        blocks = await stream.rest()
        return time.monotonic() - begun, blocks[-1].retry_ms

    ends = await asyncio.gather(*map(end, streams))
    seconds = sorted(each for each, _ in ends)
    retries = [retry_ms for _, retry_ms in ends]
    assert 2_000 <= min(retries) < 3_000, "at different moments"
    assert 9_000 < max(retries) <= 10_000
    print(f"{len(streams)} streams ended within {seconds[-1]:.2f} s")
    assert seconds[250] > 0.3, "not all together"
    assert seconds[-1] < 3 + 2
    assert await asyncio.to_thread(process.wait, 20) == 0
    print(f"the process ended after {time.monotonic() - begun:.2f} s")
    assert time.monotonic() - begun < 3 + 2
