"""Services that deliver the events of a registry, and hooks with confirmed receivers."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import LiteralString

import pytest

import warm
from applications import wait_for_postgres
from feed_writing import add_events
from muniment.service.app import build_context
from muniment.service.context import Context
from muniment.service.resources.feed.events import Position
from muniment.service.resources.webhooks import managing, store
from muniment.service.resources.webhooks.managing import run_test
from muniment.service.resources.webhooks.types import NewWebhook, Webhook, WebhookAttempt, WebhookId, WebhookUrl
from muniment.service.running.settings import Settings
from muniment.service.storage.database import Transaction
from ports import free_port
from postgres import Cluster

# A machine that is busy with other tests takes its time; the lease of a dead process lasts 15 seconds.
SECONDS_MAX = 60.0
ENGINES = ["sqlite", "postgres"]
# Of all services on one PostgreSQL. On SQLite the secrets are in the data directory.
_SECRET = "5e" * 32


@dataclass
class Registry:
    """A registry without a server; `url` is the URL of PostgreSQL, or empty for SQLite."""

    data_dir: Path
    url: str
    context: Context
    stack: ExitStack
    processes: list[warm.WarmProcess] = field(default_factory=list[warm.WarmProcess])

    @property
    def settings(self) -> dict[str, str]:
        """Settings of its processes. Receivers of tests are on loopback."""
        given = {"MUNIMENT_ALLOW_PRIVATE_NETWORKS": "true", "MUNIMENT_LOG_LEVEL": "info"}
        return given | ({"MUNIMENT_DATABASE_URL": self.url, "MUNIMENT_SECRET": _SECRET} if self.url else {})

    @property
    def environment(self) -> dict[str, str]:
        """The environment of its commands."""
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("MUNIMENT_")}
        return inherited | self.settings

    def command(self, *words: str, check: bool = True) -> str:
        """Output of `muniment WORDS`."""
        done = warm.run(*words, data=self.data_dir, timeout=SECONDS_MAX, environment=self.settings)
        assert not check or done.returncode == 0, done.stdout + done.stderr
        return done.stdout.strip()

    async def run(self, *words: str) -> str:
        """Output of `muniment WORDS`, while receivers of this process answer."""
        return await asyncio.to_thread(self.command, *words)

    async def hook(self, url: str, *, batch: bool = False, operator: str = "cli") -> tuple[WebhookId, str]:
        """Add a hook whose receiver answers the challenge; its id and secret."""
        context, new = self.context, NewWebhook(url=WebhookUrl.parse(url), batch=batch)
        hook = await managing.add(context, operator, new)
        hook_id = WebhookId.from_raw(hook.id)
        result = await run_test(context, None, hook_id)
        assert result.status == "active", result
        return hook_id, managing.secret_text(context, hook)

    async def shown(self, hook_id: WebhookId) -> tuple[Webhook, list[WebhookAttempt]]:
        """The hook and its attempts, the newest first, as the API shows them."""
        hook = await managing.get(self.context, None, hook_id)
        attempts = await store.attempts(self.context.database, hook.id)
        return managing.shown(self.context, hook), [managing.attempt_shown(each) for each in attempts]

    def deliver(self, *, program: Sequence[str] = ("-m", "muniment"), **environment: str) -> warm.WarmProcess:
        """A service, which delivers. On PostgreSQL there may be several, each with a data directory of its own."""
        number = len(self.processes)
        data_dir = self.data_dir.with_name(f"service-{number}") if self.url else self.data_dir
        log = self.stack.enter_context(self._log_of(number).open("wb"))
        words = ["serve", "--host", "127.0.0.1", "--port", str(free_port()), "--data-dir", str(data_dir)]
        settings = {**self.environment, "PYTHONPATH": str(warm.UNHURRIED), **environment}
        process = warm.popen(words, settings, program, stdout=log.fileno(), stderr=log.fileno())
        self.processes.append(process)
        self.stack.callback(_end, process)
        return process

    def _log_of(self, number: int) -> Path:
        return self.data_dir / f"service-{number}.log"

    def log(self, process: warm.WarmProcess) -> str:
        """Log of a service."""
        return self._log_of(self.processes.index(process)).read_text("utf-8")

    def logs(self) -> str:
        """Log of all services."""
        return "".join(map(self.log, self.processes))

    async def add(self, count: int, owner: bytes = bytes(20)) -> None:
        """Add so many events to the feed."""
        await add_events(self.data_dir, self.url, count, owner)

    async def write(self, sql: LiteralString, *parameters: object) -> None:
        """Run a statement in a transaction of its own."""
        await self.context.database.write(lambda tx: tx.execute(sql, parameters))

    async def remove_oldest(self, count: int) -> None:
        """Remove so many of the oldest events, as the sweep does."""

        async def work(tx: Transaction) -> None:
            ((seq,),) = await tx.fetch(
                "SELECT max(seq) FROM (SELECT seq FROM events ORDER BY seq LIMIT ?) old", (count,)
            )
            await tx.execute("UPDATE feed SET floor_seq = ?", (seq,))
            await tx.execute("DELETE FROM events WHERE seq <= ?", (seq,))

        await self.context.database.write(work)

    async def ids(self) -> list[str]:
        """The ids of all events, in order."""
        epoch = await self.context.epochs.number(self.context.database)
        rows = await self.context.database.fetch("SELECT seq FROM events ORDER BY seq")
        return [Position.at(epoch, seq) for (seq,) in rows]


def _end(process: warm.WarmProcess) -> None:
    process.kill()
    process.wait()


@contextmanager
def _database(engine: str) -> Generator[str]:
    if engine == "sqlite":
        yield ""
        return
    with Cluster() as cluster:
        yield asyncio.run(cluster.create_database("site"))


@asynccontextmanager
async def delivering(engine: str, folder: Path) -> AsyncGenerator[Registry]:
    """A migrated registry on this engine; its processes end with the fixture."""
    opened = _database(engine)
    url = await asyncio.to_thread(opened.__enter__)
    try:
        async with delivering_at(url, folder) as registry:
            yield registry
    finally:
        await asyncio.to_thread(opened.__exit__, None, None, None)


@asynccontextmanager
async def delivering_at(url: str, folder: Path) -> AsyncGenerator[Registry]:
    """The same on the database at `url`; empty for SQLite."""
    settings = Settings(
        data_dir=folder / "data", database_url=url or Settings().database_url, allow_private_networks=True
    )
    context = build_context(replace(settings, secret=_SECRET) if url else settings)
    with pytest.MonkeyPatch.context() as patch:
        wait_for_postgres(patch)
        try:
            await context.database.migrate()
            context.secrets()
            with ExitStack() as stack:
                yield Registry(folder / "data", url, context, stack)
        finally:
            await context.outgoing.close()
            await context.outgoing_webhooks.close()
            await context.database.close()


async def until(condition: Callable[[], bool], seconds_max: float = SECONDS_MAX) -> None:
    """Wait until `condition` holds, or fail."""
    deadline = time.monotonic() + seconds_max
    while not condition():
        assert time.monotonic() < deadline, "it did not come to pass"
        await asyncio.sleep(0.02)
