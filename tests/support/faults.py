"""Faults of a PostgreSQL server, and the answers of the service meanwhile."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from builders import TriggerDraft
from crashing import Site
from loading import RECOVERY_SECONDS_MAX
from service import is_there

Draft = Callable[[], TriggerDraft]

# Above the bounds of the engine (a statement 7 s, then 3 s to connect again): it ends a hang, on a busy machine too.
ANSWER_SECONDS_MAX = 60
OURS = "application_name = 'muniment' AND pid <> pg_backend_pid()"


async def assert_unavailable(*requests: Any, code: str = "database-unavailable") -> None:
    """Each request gets 503 with Retry-After within the bound."""
    began = time.monotonic()
    for response in await asyncio.gather(*requests):
        assert (response.status_code, response.json()["code"]) == (503, code), response.text
        assert int(response.headers["retry-after"]) > 0
    assert time.monotonic() - began < ANSWER_SECONDS_MAX


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    """Wait until a condition holds."""
    async with asyncio.timeout(RECOVERY_SECONDS_MAX):
        while not await holds():
            await asyncio.sleep(0.02)


async def configure(admin: Any, sql: str) -> None:
    """Change the server's configuration, and wait until a session has noticed."""
    before = await admin.fetchval("SELECT pg_conf_load_time()")
    await admin.execute(sql)
    await admin.execute("SELECT pg_reload_conf()")
    await until(lambda: admin.fetchval("SELECT pg_conf_load_time() <> $1", before))


async def end_our_sessions(admin: Any) -> None:
    await admin.execute(f"SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE {OURS}")


async def until_none_of_ours(admin: Any) -> None:
    await until(lambda: admin.fetchval(f"SELECT count(*) = 0 FROM pg_stat_activity WHERE {OURS}"))


@contextmanager
def limited_files(site: Site, size: int) -> Generator[None]:
    """Limit every file of the server to `size` bytes."""
    try:
        limit_files(site, str(size))
        yield
    finally:
        limit_files(site, "unlimited")


def limit_files(site: Site, size: str) -> None:
    """Set the limit as the server's user, or as root."""
    program = shutil.which("prlimit")
    assert site.cluster is not None
    assert program is not None, "util-linux is needed"
    first = int((site.cluster.data / "postmaster.pid").read_text().split()[0])
    limit = f"--fsize={size}:unlimited"
    site.cluster.run(program, "--pid", first, limit)  # first, since those that it starts from now on inherit it
    for pid in Path(f"/proc/{first}/task/{first}/children").read_text().split():
        try:
            site.cluster.run(program, "--pid", pid, limit)
        except RuntimeError:
            assert not is_there(int(pid)), "a process of the server that goes on has no such limit"
