"""What the tests of pins share: an application whose node is on this machine, and workers that do not rest for long."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import LiteralString

from conftest import Clock
from muniment.service.context import Context
from muniment.service.pins.worker import PinLimits, Pinner

# As in service, except that nobody waits for long.
QUICK = PinLimits(
    idle_seconds=0.02, rest_seconds=0.02, rest_seconds_max=0.05, look_seconds_max=60, import_seconds_max=60,
    search_seconds=0.1, count_seconds=0.02,
)  # fmt: skip


def with_node(context: Context, url: str, authorization: str = "") -> Context:
    """`context` with the node at `url`."""
    settings = replace(context.settings, ipfs_pin_url=url, ipfs_pin_authorization=authorization)
    return replace(context, settings=settings)


@asynccontextmanager
async def working(
    context: Context, limits: PinLimits = QUICK, on_count: Callable[[int], None] | None = None
) -> AsyncGenerator[None]:
    """The workers of a process, until the end of the block."""
    task = asyncio.create_task(Pinner(context, limits, on_count).run())
    try:
        yield
    finally:
        assert not task.done(), task
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@asynccontextmanager
async def ticking(clock: Clock) -> AsyncGenerator[None]:
    """The time goes on, until the end of the block."""

    async def tick() -> None:
        while True:
            await asyncio.sleep(0.005)
            clock.advance(seconds=0.005)

    task = asyncio.create_task(tick())
    try:
        yield
    finally:
        task.cancel()


async def until(condition: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it does not come to pass"
        await asyncio.sleep(0.01)


async def until_rows(context: Context, condition: LiteralString, count: int = 1) -> None:
    """Wait until `count` rows of the queue meet a condition of SQL."""
    deadline = time.monotonic() + 60
    sql = f"SELECT count(*) FROM pins WHERE {condition}"
    while (await context.database.fetch(sql)) != [(count,)]:
        assert time.monotonic() < deadline, await context.database.fetch("SELECT * FROM pins")
        await asyncio.sleep(0.02)


async def row(context: Context, columns: LiteralString) -> tuple[object, ...]:
    """Columns of the only row of the queue."""
    (found,) = await context.database.fetch(f"SELECT {columns} FROM pins")
    return found
