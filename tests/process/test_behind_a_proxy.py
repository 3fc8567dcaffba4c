"""Clients of one proxy: one of them does not use up the units of another."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
import pytest

from connection import Connection
from nginx import Nginx
from service import Service

LIMITS = {"MUNIMENT_RATE_LIMIT_CLIENT": "500/60s", "MUNIMENT_TRUSTED_PROXIES": "127.0.0.1"}
PARKED, READS = 600, 30
# A parked answer waits at least half as long as the second that it says.
PARKED_SECONDS_MIN = 0.5


async def refused(url: str, statuses: list[int]) -> None:
    """Asks again and again, for as long as the test goes on."""
    address = urlsplit(url)
    while True:
        reader, writer = await asyncio.open_connection(address.hostname, address.port, local_addr=("127.0.0.2", 0))
        connection = Connection(reader, writer)
        try:
            while True:
                await connection.send(b"GET /functions HTTP/1.1\r\nhost: test\r\n\r\n")
                statuses.append((await connection.answer()).status)
                await asyncio.sleep(0.5)  # this process has the other client to run as well
        except (ConnectionError, asyncio.IncompleteReadError):
            await asyncio.sleep(0.1)
        finally:
            await connection.close()


async def read(url: str) -> list[float]:
    """The seconds of each read of another client, all of which are answered."""
    seconds: list[float] = []
    transport = httpx2.AsyncHTTPTransport(local_address="127.0.0.3")
    async with httpx2.AsyncClient(base_url=url, timeout=60, transport=transport) as client:
        for _ in range(READS):
            asked = time.monotonic()
            assert (await client.get("/functions")).status_code == 200
            seconds.append(time.monotonic() - asked)
            await asyncio.sleep(0.02)
    return sorted(seconds)


@pytest.mark.timed
async def test_parked_refusals_of_one_client_delay_no_other_of_the_same_proxy(tmp_path: Path) -> None:
    with (
        Service(tmp_path / "data", environment=LIMITS) as service,
        Nginx(tmp_path / "nginx", service.url, buffers_requests=True) as proxy,
    ):
        statuses: list[int] = []
        attackers = [asyncio.create_task(refused(proxy.url, statuses)) for _ in range(PARKED)]
        try:
            while statuses.count(429) < PARKED:
                await asyncio.sleep(0.05)
            seconds = await read(proxy.url)
        finally:
            for attacker in attackers:
                attacker.cancel()
            await asyncio.gather(*attackers, return_exceptions=True)
        assert set(statuses) == {200, 429}
        assert seconds[len(seconds) // 2] < PARKED_SECONDS_MIN, seconds
