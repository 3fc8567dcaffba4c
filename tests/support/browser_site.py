"""A filled registry as a process on a free port, and a window of a browser: once for each module."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import httpx2
import pytest
import pytest_asyncio

from console_world import Registry, World, fill
from limitless import unlimited_settings
from muniment.service.app import Application, build_context
from operator_client import operator_key
from ports import free_port
from service import Service
from without_server import InProcess

if TYPE_CHECKING:
    from playwright.async_api import Browser

    from browsing import Window


@dataclass(frozen=True)
class _Filled:
    """The data of a registry with content, and what is in it."""

    data_dir: Path
    world: World
    operator_key: str


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def filled(tmp_path_factory: pytest.TempPathFactory) -> _Filled:
    data_dir = tmp_path_factory.mktemp("filled")
    now_ms = [time.time_ns() // 1_000_000]
    context = build_context(unlimited_settings(data_dir=data_dir), now_ms=lambda: now_ms[0])
    await context.database.migrate()
    transport = InProcess(Application(context))
    async with httpx2.AsyncClient(transport=transport, base_url="http://test") as client:
        world = await fill(context, client, lambda moment_ms: now_ms.__setitem__(0, moment_ms))
    key = await operator_key(context)
    for part in (context.outgoing, context.outgoing_webhooks, context.database):
        await part.close()
    return _Filled(data_dir, world, key)


@pytest.fixture(scope="module")
def registry(filled: _Filled, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    data_dir = tmp_path_factory.mktemp("registry")
    shutil.copytree(filled.data_dir, data_dir, dirs_exist_ok=True)
    # The log begins when the service runs, and has its records within seconds.
    port = free_port()
    named = {"MUNIMENT_PUBLIC_URL": f"http://127.0.0.1:{port}"}  # so people log in in words
    log = {"MUNIMENT_TLOG_NAME": "registry.example", "MUNIMENT_TLOG_INTERVAL_S": "1"}
    with Service(data_dir, port=port, environment={**log, **named}) as service:
        yield Registry(service.url, filled.world, filled.operator_key)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def chromium() -> AsyncIterator[Browser]:
    from browsing import browser, browser_program  # noqa: PLC0415 - most test processes open no browser

    if browser_program() is None:
        message = "Chromium is not here: install it, or name it by TEST_CHROMIUM"
        if os.environ.get("CI"):
            pytest.fail(message)
        pytest.skip(message)
    async with browser() as launched:
        yield launched


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def window(chromium: Browser, registry: Registry) -> AsyncIterator[Window]:
    from browsing import window_of  # noqa: PLC0415 - likewise: it loads Playwright

    async with window_of(chromium, registry.url) as made:
        yield made
