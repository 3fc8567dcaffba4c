"""A program that migrates at its start, while PostgreSQL is away."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import MutableMapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import pytest
import structlog

from answers import ok
from cuttable_proxy import CuttableProxy, cuttable_proxy
from muniment.operate import databases
from muniment.protocol.errors import DatabaseUnavailable
from muniment.service.running.settings import Settings
from muniment.service.storage.migrate import migrations
from ports import free_port
from postgres import Cluster
from service import Service


class Lines:
    """The lines of the log of this process, from all threads."""

    def __init__(self) -> None:
        self.lines: list[MutableMapping[str, Any]] = []
        self.is_first_there = threading.Event()

    def __call__(self, logger: Any, method: str, line: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        del logger, method
        self.lines.append(line)
        self.is_first_there.set()
        raise structlog.DropEvent


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> Lines:
    kept = Lines()
    monkeypatch.setattr(databases, "_log", structlog.wrap_logger(None, processors=[kept]))
    return kept


async def settings_at(cluster: Cluster, folder: Path, port: int | None = None, name: str = "") -> Settings:
    """Settings of an empty database; another `port` leads to it later."""
    url = await cluster.create_database(f"patience-{folder.name}")
    url = url.replace(f":{cluster.port}/", f":{port or cluster.port}/")
    return Settings(data_dir=folder / "data", database_url=url.rpartition("/")[0] + f"/{name}" if name else url)


async def test_a_server_that_is_away_is_waited_for(cluster: Cluster, tmp_path: Path, lines: Lines) -> None:
    port = free_port()
    settings = await settings_at(cluster, tmp_path, port)
    migrating = asyncio.create_task(asyncio.to_thread(databases.migrate, settings, patience_s=60))
    assert await asyncio.to_thread(lines.is_first_there.wait, 60)
    assert not migrating.done()
    async with cuttable_proxy(port, cluster.port):
        assert await migrating == [each.name for each in migrations("postgres")]
    assert lines.lines[0]["event"] == "waiting for the database"
    assert lines.lines[0]["detail"] == "the database cannot be reached: ConnectionRefusedError"


async def test_it_is_not_waited_for_for_ever(cluster: Cluster, tmp_path: Path, lines: Lines) -> None:
    settings = await settings_at(cluster, tmp_path, free_port())
    with pytest.raises(DatabaseUnavailable) as refusal:
        await asyncio.to_thread(databases.migrate, settings, patience_s=0.05)
    assert refusal.value.detail == "the database cannot be reached: ConnectionRefusedError"
    assert len(lines.lines) <= 1  # none if the first attempt took all of the patience


async def test_what_no_wait_mends_is_said_at_once(cluster: Cluster, tmp_path: Path, lines: Lines) -> None:
    """A database that is not there, and a file that cannot be opened."""
    for settings, why in (
        (await settings_at(cluster, tmp_path, name="absent"), "InvalidCatalogNameError"),
        (replace(Settings(), data_dir=tmp_path / "data", database_url=f"sqlite:///{tmp_path}"), "cannot open"),
    ):
        with pytest.raises(DatabaseUnavailable) as refusal:
            await asyncio.to_thread(databases.migrate, settings, patience_s=3_600)
        assert why in refusal.value.detail
    assert lines.lines == []


async def test_a_service_that_starts_before_its_server_serves(cluster: Cluster, tmp_path: Path) -> None:
    proxy, attempts = CuttableProxy(cluster.port), 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal attempts
        attempts += 1
        if attempts <= 2:  # as a server that stops
            writer.close()
        else:
            await proxy.serve(reader, writer)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    settings = await settings_at(cluster, tmp_path, server.sockets[0].getsockname()[1])
    environment = {"MUNIMENT_DATABASE_URL": settings.database_url, "MUNIMENT_MIGRATE_AT_START": "true"}
    service = Service(tmp_path / "data", environment=environment)
    service.launch()
    try:
        await asyncio.to_thread(service.wait_until_ready)
        async with httpx2.AsyncClient(base_url=service.url) as client:
            assert ok(await client.get("/triggers")).json() == []
        assert attempts > 2
    finally:
        await asyncio.to_thread(service.stop)
        server.close()
        await proxy.close()
