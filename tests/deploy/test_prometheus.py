"""Every expression of the alerts and of the dashboard, asked of a Prometheus that scrapes services under load."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Generator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Final

import httpx2
import pytest
import yaml
from programs import DEPLOY
from prometheus import Prometheus, scraping

import warm
from builders import Wallet, deploy, log_in
from chain import CHAIN_TESTS, LocalChain
from loading import Load
from migrated import migrated_directory
from ports import free_port
from postgres import Cluster
from service import Service
from watching_world import chains_file

CHAIN: Final = 8453
# Metrics without a value in this test, and why.
ABSENT: Final = {
    "muniment_watcher_behind_blocks": "no watcher runs: the only node does not answer",
    "muniment_watcher_step_timestamp_seconds": "likewise",
    "muniment_tlog_witness_answers_total": "no witness is named",
    "muniment_webhook_backlog_seconds": "no webhook is active",
}
# A process first takes the turn of writing the log.
_STEADY_SECONDS_MAX: Final = 60
# A left side of a comparison has data as long as the service has some; the whole comparison only in trouble.
COMPARISON: Final = re.compile(r"\s(?:[<>]=?|==|unless|and)\s")
LIMITS: Final = {
    f"MUNIMENT_RATE_LIMIT_{policy}": "100000/1s" for policy in ("CLIENT", "LOGIN", "OWNER", "STOP")
}  # they count, and refuse nobody


def alerts() -> dict[str, str]:
    groups = yaml.safe_load((DEPLOY / "monitoring" / "alerts.yml").read_text())["groups"]
    return {rule["alert"]: rule["expr"] for group in groups for rule in group["rules"]}


def panels() -> dict[str, list[str]]:
    """The expressions of each panel, as Grafana asks them for all instances."""
    dashboard: dict[str, Any] = json.loads((DEPLOY / "monitoring" / "dashboard.json").read_text())
    return {
        panel["title"]: [
            target["expr"].replace("$instance", ".*").replace("$__rate_interval", "1m") for target in panel["targets"]
        ]
        for panel in dashboard["panels"] if panel["type"] != "row"
    }  # fmt: skip


@pytest.fixture
def services(tmp_path: Path) -> Iterator[tuple[Service, Service]]:
    """A service on SQLite with a log, whose node is away, and one on PostgreSQL with a replica."""
    file = chains_file(tmp_path, {CHAIN: ([], [f"http://127.0.0.1:{free_port()}"])})
    own = {
        "MUNIMENT_CHAINS_FILE": str(file), "MUNIMENT_ALLOW_PRIVATE_NETWORKS": "true",
        "MUNIMENT_TLOG_NAME": "registry.example.org",
    }  # fmt: skip
    with Cluster() as primary, primary.replica() as replica:
        database = asyncio.run(primary.create_database("scraped"))
        name = database.rpartition("/")[2]
        urls = {
            "MUNIMENT_DATABASE_URL": database,
            "MUNIMENT_DATABASE_READ_URLS": replica.url(name),
            "MUNIMENT_MIGRATE_AT_START": "true",
        }
        with (
            Service(tmp_path / "one", environment={**LIMITS, **own}) as one,
            Service(tmp_path / "two", environment={**LIMITS, **urls}) as two,
        ):
            yield one, two


@asynccontextmanager
async def loaded(service: Service) -> AsyncGenerator[None]:
    """Clients that write, read and are refused, until the end."""
    async with httpx2.AsyncClient(base_url=service.url, trust_env=False, timeout=60) as client:
        cid = await deploy(client)
        token = await log_in(client, Wallet())
        task = asyncio.create_task(_read(client, token))
        try:
            async with Load([service.url], cid, service.operator_key()) as load:
                await load.until(lambda: load.is_of_every_kind(20))
                yield
                assert not task.done(), task.exception()
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def _read(client: httpx2.AsyncClient, token: str) -> None:
    while True:
        for path in ("/triggers", "/intents?limit=1", "/functions", "/nowhere"):
            assert (await client.get(path)).status_code in {200, 404}
        # On the service whose node is away, this is the 503 that the alert about 5xx counts.
        await client.get("/users/tokens", headers={"x-auth-token": token})
        await asyncio.sleep(0.02)


async def wrong(prometheus: Prometheus, expressions: dict[str, str]) -> list[str]:
    """The expressions without data that should have some, and those with data that should have none."""
    found: list[str] = []
    for name, expression in expressions.items():
        series = await prometheus.query(expression)
        if bool(series) == any(metric in expression for metric in ABSENT):
            found.append(f"{name}: {expression}")
    return found


async def still_wrong(prometheus: Prometheus, expressions: dict[str, str]) -> list[str]:
    """Those of `wrong` that are left when time is up."""
    deadline = time.monotonic() + _STEADY_SECONDS_MAX
    while (found := await wrong(prometheus, expressions)) and time.monotonic() < deadline:
        await asyncio.sleep(1)
    return found


async def test_every_expression_has_data_wherever_a_loaded_service_has_some(
    services: tuple[Service, Service], tmp_path: Path
) -> None:
    asked = {
        **{alert: COMPARISON.split(expression)[0] for alert, expression in alerts().items()},
        **{f"{title} {at}": each for title, listed in panels().items() for at, each in enumerate(listed)},
    }
    one, two = services
    async with loaded(one), loaded(two):
        back_up(one)
        async with scraping(tmp_path / "prometheus", [one.url, two.url]) as prometheus:
            await prometheus.wait_for_scrapes(targets=2)
            assert await still_wrong(prometheus, asked) == []
            rules = await prometheus.rules()
            assert [rule["name"] for rule in rules] == list(alerts())
            assert {rule["health"] for rule in rules} == {"ok"}, rules
            # It would fire after some minutes, as it should while a node is away.
            assert {rule["name"]: rule["state"] for rule in rules}["MunimentServerErrors"] == "pending"


@CHAIN_TESTS[1]
async def test_each_alert_about_chains_fires_once_a_watcher_has_ended(tmp_path: Path) -> None:
    of_chains = {"MunimentWatcherBehind", "MunimentWatcherGone", "MunimentChainUnreadable"}
    with LocalChain(CHAIN) as chain:
        file, port = chains_file(tmp_path, {CHAIN: (chain.deploy("MiniSettlerLegacy"), [chain.url])}), free_port()
        with watching(tmp_path / "data", file, port) as watcher:
            async with scraping(
                tmp_path / "prometheus", [f"http://127.0.0.1:{port}"], job="muniment-watcher", fast=True
            ) as prometheus:
                await prometheus.wait_for_scrapes(targets=1)
                await until_it_has(prometheus, "sum_over_time(count(muniment_watcher_behind_blocks == 0)[1m:1s]) >= 40")
                assert await prometheus.query('ALERTS{alertstate="firing"}') == [], "it goes on"
                watcher.kill()
                watcher.wait()
                await until_it_has(prometheus, 'count(ALERTS{alertstate="firing", chain="8453"}) >= 3')
                firing = await prometheus.query('ALERTS{alertstate="firing"}')
                assert {each["metric"]["alertname"] for each in firing} == of_chains


@contextmanager
def watching(directory: Path, file: Path, port: int) -> Generator[warm.WarmProcess]:
    """A process that follows the chains of `file`, with its endpoint at `port`."""
    migrated_directory(directory)
    words = ["--chains", str(file), "--data-dir", str(directory), "--interval", "0.2", "--health", f"127.0.0.1:{port}"]
    environment = {**os.environ, "MUNIMENT_ALLOW_PRIVATE_NETWORKS": "true", "MUNIMENT_LOG_LEVEL": "error"}
    process = warm.popen(["intents", "watch", *words], environment, stdout=2)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


async def until_it_has(prometheus: Prometheus, expression: str) -> None:
    async with asyncio.timeout(10 * _STEADY_SECONDS_MAX):
        while not await prometheus.query(expression):
            await asyncio.sleep(0.5)


def back_up(service: Service) -> None:
    """Make a backup, so that it has an age."""
    command = [sys.executable, "-m", "muniment", "backup", str(service.data_dir.parent / "backup")]
    subprocess.run([*command, "--data-dir", str(service.data_dir)], check=True, capture_output=True)


@pytest.mark.parametrize("metric", ABSENT)
def test_a_metric_without_a_value_is_one_that_is_asked_for(metric: str) -> None:
    assert metric in str([alerts(), panels()])
