"""/healthz and /readyz, and a process that starts before its database is ready."""

from __future__ import annotations

import asyncio
import shutil
import signal
import threading
import time
from collections.abc import AsyncIterator, Iterator
from types import FrameType
from typing import NamedTuple

import httpx2
import pytest
from structlog.testing import capture_logs

from applications import client_of
from muniment.protocol.errors import Unavailable
from muniment.service.app import DISK_BYTES_MIN, Application, build_context, operations
from muniment.service.context import Context
from muniment.service.running.settings import Settings


class Usage(NamedTuple):
    """As `shutil.disk_usage` gives it."""

    total: int
    used: int
    free: int


@pytest.fixture
async def unmigrated(settings: Settings) -> AsyncIterator[Context]:
    made = build_context(settings)
    yield made
    await made.database.close()


async def assert_not_ready(client: httpx2.AsyncClient, why: str) -> None:
    assert (await client.get("/healthz")).json() == {"status": "ok"}
    refused = await client.get("/readyz")
    assert (refused.status_code, refused.json()["code"]) == (503, "not-ready")
    assert why in refused.json()["detail"]
    assert int(refused.headers["retry-after"]) > 0


async def test_a_process_with_all_it_needs_is_ready(client: httpx2.AsyncClient) -> None:
    for path in ("/healthz", "/readyz"):
        assert (await client.get(path)).json() == {"status": "ok"}
        assert (await client.head(path)).status_code == 200


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_without_migrations_it_is_not_ready_until_they_are_applied(unmigrated: Context) -> None:
    async with client_of(Application(unmigrated)) as client:
        await assert_not_ready(client, "0001_initial.sql")
        refused = await client.get("/triggers")
        assert (refused.status_code, refused.json()["code"]) == (503, "database-unavailable")
        await unmigrated.database.migrate()
        assert (await client.get("/readyz")).status_code == 200
        assert (await client.get("/triggers")).json() == []


@pytest.mark.parametrize(("free", "ready"), [(DISK_BYTES_MIN, True), (DISK_BYTES_MIN - 1, False), (0, False)])
async def test_too_little_room_on_the_disk_is_not_ready(
    client: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch, free: int, *, ready: bool
) -> None:
    # No test can fill the disk of its machine.
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(DISK_BYTES_MIN * 1_000, 0, free))
    if ready:
        assert (await client.get("/readyz")).status_code == 200
    else:
        await assert_not_ready(client, "the disk has less than 64 MiB free")
        assert (await client.get("/triggers")).status_code == 200


async def test_a_data_directory_that_is_gone_is_not_ready(
    client: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(_: object) -> Usage:
        raise FileNotFoundError(2, "No such file or directory")

    monkeypatch.setattr(shutil, "disk_usage", gone)  # without the directory SQLite would fail before
    await assert_not_ready(client, "No such file or directory")


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_a_database_that_is_not_ready_does_not_keep_the_process_from_starting(unmigrated: Context) -> None:
    """A worker that is replaced while the database is busy must not take the others down with it."""
    async with Application(unmigrated).lifespan(), client_of(Application(unmigrated)) as client:
        await assert_not_ready(client, "0001_initial.sql")


@pytest.fixture
def stopped() -> Iterator[list[int]]:
    """A server's handler of SIGTERM: the signals that have reached it."""
    numbers: list[int] = []

    def stop(number: int, _: FrameType | None) -> None:
        numbers.append(number)

    before = signal.signal(signal.SIGTERM, stop)
    yield numbers
    signal.signal(signal.SIGTERM, before)


@pytest.mark.spoils_events("the application closes the database")
async def test_at_sigterm_it_is_not_ready_and_the_server_stops_after_the_delay(
    context: Context, stopped: list[int]
) -> None:
    application = Application(context)
    assert threading.current_thread() is threading.main_thread()
    async with application.lifespan():
        assert not application.context.serving.is_stopping()
        signal.raise_signal(signal.SIGTERM)
        assert application.context.serving.is_stopping()
        assert stopped == []
        async with asyncio.timeout(60):
            while not stopped:
                await asyncio.sleep(0)
        assert stopped == [signal.SIGTERM]


@pytest.mark.spoils_events("the test closes the database")
async def test_the_sweep_survives_a_database_that_does_not_answer(context: Context) -> None:
    turns: list[str] = []

    async def settle(*_: object) -> int:
        turns.append("turn")
        if len(turns) == 1:
            raise Unavailable("not now")
        return 0

    async with Application(context, sweeps=(settle,), sweep_seconds=0.01).lifespan():
        async with asyncio.timeout(60):
            while len(turns) <= 2:
                await asyncio.sleep(0.01)


async def test_those_who_ask_at_once_share_their_checks_and_the_log_has_one_line(context: Context) -> None:
    checks: list[None] = []

    async def fail(_: Context) -> None:
        checks.append(None)
        raise Unavailable("nothing works")

    shared, began = operations.Readiness(checks=(fail,)), time.monotonic()
    with capture_logs() as lines:
        asked = await asyncio.gather(*(shared.check(context) for _ in range(100)), return_exceptions=True)
        assert len(checks) == 1
        for _ in range(4 * operations.CHECKS_PER_SECOND_MAX):
            with pytest.raises(Unavailable):
                await shared.check(context)
    assert [str(each) for each in asked] == ["nothing works"] * 100
    began_windows = 2 + int(time.monotonic() - began)  # a busy machine takes more than a second
    assert len(checks) <= began_windows * operations.CHECKS_PER_SECOND_MAX
    assert [line["event"] for line in lines] == ["not ready"]
