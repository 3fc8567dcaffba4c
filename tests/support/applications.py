"""Clients of the application in process, and a second context on the same data."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, Final

import httpx2
import pytest

from conformance import check_answer
from muniment.service.app import Application, build_context
from muniment.service.context import Context
from muniment.service.storage.database import DATABASE_LIMITS, Database, DatabaseLimits
from muniment.service.storage.postgres import connection as postgres_connection
from muniment.service.storage.sqlite.engine import SLOW_READERS
from without_server import InProcess

# A read or write that waits because the machine is busy is no refusal of the service.
PATIENT: Final = replace(
    DATABASE_LIMITS, slow_read_seconds_max=60, write_wait_seconds_max=60, writes_late_seconds_max=60
)
_ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"


def wait_for_postgres(monkeypatch: pytest.MonkeyPatch) -> None:
    """Raise PostgreSQL's limits of time to a minute, for busy machines."""
    monkeypatch.setattr(postgres_connection, "ANSWER_SECONDS_MAX", 60.0)
    for limit in ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout"):
        monkeypatch.setitem(postgres_connection.SESSION, limit, "60000")


@asynccontextmanager
async def client_of(app: Application, address: str = "127.0.0.1") -> AsyncGenerator[httpx2.AsyncClient]:
    """Client of the application at this address. Each answer is compared with the OpenAPI document."""
    transport = InProcess(app, address)
    hooks: dict[str, list[Callable[..., Any]]] = {"response": [check_answer]}
    async with httpx2.AsyncClient(transport=transport, base_url="http://test", event_hooks=hooks) as made:
        yield made


@asynccontextmanager
async def another_process(context: Context, limits: DatabaseLimits = PATIENT) -> AsyncGenerator[Context]:
    """A context on the data of `context`, as of another process, with other limits."""
    made = build_context(context.settings, now_ms=context.clock.now_ms, database_limits=limits)
    try:
        yield made
    finally:
        await made.outgoing.close()
        await made.outgoing_webhooks.close()
        await made.database.close()


@asynccontextmanager
async def readers_held(database: Database) -> AsyncGenerator[None]:
    """Occupy all readers of this SQLite database with long reads until the end of the block."""
    reads = [asyncio.create_task(database.fetch_slow(_ENDLESS)) for _ in range(SLOW_READERS)]
    await asyncio.sleep(0.05)
    try:
        yield
    finally:
        for read in reads:
            read.cancel()
        await asyncio.gather(*reads, return_exceptions=True)
