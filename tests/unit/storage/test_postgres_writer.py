"""A caller gets its outcome although the log cannot be written."""

from __future__ import annotations

import asyncio
import socket
from typing import NoReturn

import pytest

from muniment.errors import DatabaseUnavailable
from muniment.storage.postgres import writer as postgres_writer
from muniment.storage.postgres.engine import PostgresDatabase

# A writer that lost a job would keep its caller waiting for ever.
ANSWER_SECONDS_MAX = 120


class BrokenLog:
    """A log whose standard error was closed before the service started."""

    def error(self, *_: object, **__: object) -> NoReturn:
        raise AttributeError("'NoneType' object has no attribute 'write'")


async def test_a_failing_log_keeps_no_caller_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_writer, "_log", BrokenLog())
    with socket.socket() as held:  # bound, and nobody listens
        held.bind(("127.0.0.1", 0))
        database = PostgresDatabase(f"postgresql://nobody@127.0.0.1:{held.getsockname()[1]}/none")
        for writers in (1, 3):
            writing = [database.write(lambda tx: tx.execute("SELECT 1")) for _ in range(writers)]
            async with asyncio.timeout(ANSWER_SECONDS_MAX):
                outcomes = await asyncio.gather(*writing, return_exceptions=True)
            assert [type(each) for each in outcomes] == [DatabaseUnavailable] * writers
        await database.close()
