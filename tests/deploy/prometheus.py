"""A Prometheus with the shipped rules, which scrapes services of the test every second."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import httpx2
import yaml
from programs import DEPLOY, installed

from ports import free_port

_START_SECONDS_MAX: Final = 60
_SCRAPES: Final = 6


class Prometheus:
    """What a running Prometheus answers."""

    def __init__(self, client: httpx2.AsyncClient) -> None:
        self._client = client

    async def query(self, expression: str) -> list[Any]:
        """The series that an expression has now; fails with the fault that Prometheus finds in it."""
        answer = await self._client.get("/api/v1/query", params={"query": expression})
        assert answer.status_code == 200, f"{expression}: {answer.text}"
        return answer.json()["data"]["result"]

    async def rules(self) -> list[Any]:
        """The rules, with the faults of their last evaluation."""
        groups = (await self._client.get("/api/v1/rules")).json()["data"]["groups"]
        return [rule for group in groups for rule in group["rules"]]

    async def wait_for_targets(self, targets: set[str]) -> None:
        """Until these are the targets that answer, or do not."""
        async with asyncio.timeout(_START_SECONDS_MAX):
            while {each["metric"]["instance"] for each in await self.query('up{job="muniment"}')} != targets:
                await asyncio.sleep(0.2)

    async def wait_for_scrapes(self, targets: int) -> None:
        """Until so many targets were scraped some times, and rules were evaluated."""
        async with asyncio.timeout(_START_SECONDS_MAX):
            while len(await self.query(f"sum_over_time(up[5m]) >= {_SCRAPES}")) < targets:
                await asyncio.sleep(0.2)
            while {rule["health"] for rule in await self.rules()} == {"unknown"}:
                await asyncio.sleep(0.2)


@asynccontextmanager
async def scraping(
    folder: Path, urls: list[str], *, job: str = "muniment", fast: bool = False
) -> AsyncGenerator[Prometheus]:
    """Prometheus with the shipped configuration, but for its intervals, and `urls` as the targets of `job` alone.

    `fast`: where the rules wait for a minute, three seconds are enough.
    """
    targets = [{"targets": [url.removeprefix("http://") for url in urls]}]
    asked = {**shipped_job("prometheus.yml", job), "static_configs": targets}
    async with running(folder, asked, fast=fast) as prometheus:
        yield prometheus


def shipped_job(file: str, name: str) -> dict[str, Any]:
    """The job of this name in a shipped configuration."""
    jobs = yaml.safe_load((DEPLOY / "monitoring" / file).read_text())["scrape_configs"]
    (job,) = (each for each in jobs if each["job_name"] == name)
    return job


@asynccontextmanager
async def running(
    folder: Path, job: dict[str, Any], *, fast: bool = False, prefix: Sequence[str | Path] = ()
) -> AsyncGenerator[Prometheus]:
    """Prometheus with the shipped rules and this job alone. `prefix` is before its command."""
    folder.mkdir()
    rules = (DEPLOY / "monitoring" / "alerts.yml").read_text()
    if fast:
        rules = re.sub(r"\b(\d+)m\b", lambda found: f"{3 * int(found[1])}s", rules).replace("> 300", "> 15")
    (folder / "alerts.yml").write_text(rules)
    config = {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
        "rule_files": ["alerts.yml"], "scrape_configs": [job],
    }  # fmt: skip
    (folder / "prometheus.yml").write_text(json.dumps(config))  # JSON is YAML
    port = free_port()
    command = [
        *prefix, installed("prometheus"),
        f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data",
        f"--web.listen-address=127.0.0.1:{port}",
    ]  # fmt: skip
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stderr=log)
    try:
        async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=30) as client:
            async with asyncio.timeout(_START_SECONDS_MAX):
                while not await _is_ready(client):
                    assert process.poll() is None, (folder / "log").read_text()
                    await asyncio.sleep(0.1)
            yield Prometheus(client)
    finally:
        process.terminate()
        process.wait(timeout=30)


async def _is_ready(client: httpx2.AsyncClient) -> bool:
    try:
        return (await client.get("/-/ready")).status_code == 200
    except httpx2.TransportError:
        return False
