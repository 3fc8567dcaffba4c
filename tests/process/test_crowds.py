"""Many connections of many addresses at the same time: accepted ones are answered, and /readyz finds room."""

from __future__ import annotations

import asyncio
import resource
import time
from contextlib import suppress
from pathlib import Path

import httpx2

from service import Service

GET = b"GET /functions HTTP/1.1\r\nHost: test\r\n\r\n"
_SECONDS_MAX = 60


async def connected(service: Service, number: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
    """A connection from an address that a few share; None when it is refused."""
    try:
        return await asyncio.open_connection(
            "127.0.0.1", int(service.url.rpartition(":")[2]), local_addr=(f"127.0.1.{1 + number % 200}", 0)
        )
    except OSError:
        return None


async def status_of(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> int:
    """Of the answer to a request; 0 when the connection ends before one."""
    try:
        writer.write(GET)
        async with asyncio.timeout(_SECONDS_MAX):
            head = await reader.readuntil(b"\r\n\r\n")
        return int(head.split()[1])
    except (ConnectionError, asyncio.IncompleteReadError):
        return 0


async def crowd(service: Service, count: int) -> list[int]:
    """So many connections that are held, each with a request; their statuses, those that got none left out."""
    made = [each for each in await asyncio.gather(*(connected(service, n) for n in range(count))) if each]
    statuses = await asyncio.gather(*(status_of(*each) for each in made))
    for path in ("/healthz", "/readyz"):  # a probe has room, at the latest when a connection has gone
        assert await eventually_ok(service.url + path)
    for _, writer in made:
        writer.transport.abort()
    return [status for status in statuses if status]


async def eventually_ok(url: str) -> bool:
    deadline = time.monotonic() + _SECONDS_MAX
    async with httpx2.AsyncClient(trust_env=False) as client:
        while time.monotonic() < deadline:
            with suppress(httpx2.TransportError):
                if (await client.get(url)).status_code == 200:
                    return True
            await asyncio.sleep(0.05)
    return False


async def test_nine_hundred_simultaneous_connections_are_all_answered(service: Service) -> None:
    assert await crowd(service, 900) == [200] * 900


async def test_under_a_small_descriptor_limit_accepted_connections_are_answered_and_the_process_recovers(
    tmp_path: Path,
) -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    service = Service(tmp_path / "data", environment={"MUNIMENT_CONNECTIONS_MAX": "128"})
    with service:
        resource.prlimit(service.pid, resource.RLIMIT_NOFILE, (256, before[1]))
        made = [each for each in await asyncio.gather(*(connected(service, n) for n in range(400))) if each]
        statuses = await asyncio.gather(*(status_of(*each) for each in made))
        assert set(statuses) <= {0, 200}
        assert statuses.count(200) >= 100
        for _, writer in made:
            writer.transport.abort()
        assert await eventually_ok(f"{service.url}/readyz")
        assert await crowd(service, 100) == [200] * 100
