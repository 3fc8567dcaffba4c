"""A filled registry as a process on a free port, and a browser: once for each module."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import httpx2
import pytest
import pytest_asyncio

from console_world import Registry, fill
from limitless import unlimited_settings
from muniment.service.app import Application, build_context
from operator_client import operator_key
from ports import free_port
from service import Service

if TYPE_CHECKING:
    from playwright.async_api import Browser


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def registry(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Registry]:
    data_dir = tmp_path_factory.mktemp("registry")
    now_ms = [time.time_ns() // 1_000_000]
    context = build_context(unlimited_settings(data_dir=data_dir), now_ms=lambda: now_ms[0])
    await context.database.migrate()
    transport = httpx2.ASGITransport(app=Application(context))
    async with httpx2.AsyncClient(transport=transport, base_url="http://test") as client:
        world = await fill(context, client, lambda moment_ms: now_ms.__setitem__(0, moment_ms))
    key = await operator_key(context)
    for part in (context.outgoing, context.outgoing_webhooks, context.database):
        await part.close()
    # The log begins when the service runs, and has its records within seconds.
    port = free_port()
    named = {"MUNIMENT_PUBLIC_URL": f"http://127.0.0.1:{port}"}  # so people log in in words
    log = {"MUNIMENT_TLOG_NAME": "registry.example", "MUNIMENT_TLOG_INTERVAL_S": "1"}
    service = Service(data_dir, port=port, environment={**log, **named}).start()
    yield Registry(service.url, world, key)
    service.stop()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def chromium() -> AsyncIterator[Browser]:
    from browsing import browser, browser_program  # noqa: PLC0415 - most test processes open no browser

    if browser_program() is None:
        message = "Chromium is not here: install it, or name it by MUNIMENT_TEST_CHROMIUM"
        if os.environ.get("CI"):
            pytest.fail(message)
        pytest.skip(message)
    async with browser() as launched:
        yield launched
