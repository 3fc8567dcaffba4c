"""A caller gets its outcome although the log cannot be written."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import structlog

from muniment.protocol.errors import DatabaseUnavailable
from muniment.service.storage.postgres.engine import PostgresDatabase

# A writer that lost a job would keep its caller waiting for ever.
ANSWER_SECONDS_MAX = 120


async def test_a_failing_log_keeps_no_caller_waiting(tmp_path: Path) -> None:
    with (tmp_path / "log").open("w") as closed:  # as when standard error was closed before the service started
        structlog.configure(logger_factory=structlog.PrintLoggerFactory(closed))
    with socket.socket() as held:  # bound, but not listening
        held.bind(("127.0.0.1", 0))
        database = PostgresDatabase(f"postgresql://nobody@127.0.0.1:{held.getsockname()[1]}/none")
        for writers in (1, 3):
            writing = [database.write(lambda tx: tx.execute("SELECT 1")) for _ in range(writers)]
            async with asyncio.timeout(ANSWER_SECONDS_MAX):
                outcomes = await asyncio.gather(*writing, return_exceptions=True)
            assert [type(each) for each in outcomes] == [DatabaseUnavailable] * writers
        await database.close()
