"""Clients of a proxy: one does not use up the units of another, and a path of its own is no obstacle to any."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
import pytest

from builders import TriggerDraft, deploy, register
from connection import Connection
from muniment.client import FunctionNotFound, Registry
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


async def test_a_proxy_may_serve_the_registry_under_a_path(tmp_path: Path) -> None:
    with (
        Service(tmp_path / "data", environment={"MUNIMENT_RATE_LIMIT_CLIENT": "off"}) as service,
        Nginx(tmp_path / "nginx", service.url, at="/registry/") as proxy,
        httpx2.Client(follow_redirects=True) as client,
    ):
        async with httpx2.AsyncClient(base_url=service.url) as direct:
            cid = await deploy(direct)
            sigs = [(await register(direct, TriggerDraft(cid, version=f"{n}.0.0")))["sig"] for n in range(3)]
        page, seen = client.get(f"{proxy.url}/triggers?limit=1&sort=1&functionCid={cid}"), list[str]()
        while page.json():
            seen += [each["sig"] for each in page.json()]
            page = client.get(page.url.join(page.links["next"]["url"]))
        assert seen == sigs
        for path in ("/triggers/0x12", "/nothing/at/all", "//functions?limit=0"):
            problem = client.get(proxy.url + path)
            assert problem.json()["code"] in client.get(problem.url.join(problem.json()["type"])).text
        home = client.get(f"{proxy.url}/", headers={"accept": "text/html"})
        assert (home.status_code, str(home.url)) == (200, f"{proxy.url}/console")
        with Registry(proxy.url) as registry:
            assert sorted(each.sig for each in registry.triggers.list(limit=1)) == sorted(sigs)
            assert registry.triggers.get(sigs[0]).sig == sigs[0]
            with pytest.raises(FunctionNotFound):
                registry.functions.get("QmQWmG3opiSLrj9k5bGu3LZ8gkwUU6MxrinaSQr6rKv51V")
