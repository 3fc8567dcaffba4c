"""Clients of the application in process, and the same data opened as another process opens it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx2

from conformance import check_answer
from muniment.app import Application, build_context
from muniment.context import Context
from muniment.storage.database import Database, DatabaseLimits
from muniment.storage.sqlite.engine import SLOW_READERS

_ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"


@asynccontextmanager
async def client_of(app: Application) -> AsyncGenerator[httpx2.AsyncClient]:
    """A client of the application. Each of its answers is compared with the OpenAPI document."""
    transport = httpx2.ASGITransport(app=app)
    hooks: dict[str, list[Callable[..., Any]]] = {"response": [check_answer]}
    async with httpx2.AsyncClient(transport=transport, base_url="http://test", event_hooks=hooks) as made:
        yield made


@asynccontextmanager
async def another_process(context: Context, limits: DatabaseLimits) -> AsyncGenerator[Context]:
    """The data of `context` as another process opens it, with other limits."""
    made = build_context(context.settings, now_ms=context.now_ms, database_limits=limits)
    yield made
    await made.outgoing.close()
    await made.outgoing_webhooks.close()
    await made.database.close()


@asynccontextmanager
async def readers_held(database: Database) -> AsyncGenerator[None]:
    """Other long reads occupy all readers of this SQLite database until the end of the block."""
    reads = [asyncio.create_task(database.fetch_slow(_ENDLESS)) for _ in range(SLOW_READERS)]
    await asyncio.sleep(0.05)
    try:
        yield
    finally:
        for read in reads:
            read.cancel()
        await asyncio.gather(*reads, return_exceptions=True)
