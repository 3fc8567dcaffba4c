"""Import intents from a file of JSON lines. A second import of a file continues after its last recorded line."""

from __future__ import annotations

import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from muniment.chains.catalogue import load_chains
from muniment.operate import databases
from muniment.service.resources.intents import json_lines
from muniment.service.resources.intents.json_lines import Import, Progress

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable
    from typing import IO

    from muniment.protocol.errors import Refusal
    from muniment.service.running.settings import Settings


@asynccontextmanager
async def opened_import(
    settings: Settings,
    file: IO[bytes],
    *,
    is_stream: bool,
    restart: bool,
    on_refused: Callable[[int, Refusal], None],
    on_shared: Callable[[int, str], None],
) -> AsyncGenerator[Import]:
    """An import that is ready to run, with `file` at its start position.

    A stream (`is_stream`) is read once and has no stored position. `on_refused` gets the number of each refused line
    and the reason, `on_shared` the number of each line with a second intent of one nonce. Raises `Refusal`, `OSError`,
    and `ValueError` for a wrong chains file.
    """
    chains = load_chains(settings.chains_file)
    async with databases.opened(settings) as database:
        await (database.migrate() if settings.migrates_at_start else database.check())
        source, start = None if is_stream else json_lines.fingerprint(file), Progress()
        if source is not None and not restart:
            start = await json_lines.progress_of(database, source)
            file.seek(start.bytes)
        ahead_ms = _wall_ms() - (await database.time_ms() or _wall_ms())
        yield Import(
            database=database, protocol=settings.protocol_name, chains=chains,
            grace_s=settings.settlement_grace_s, now_ms=lambda: _wall_ms() - ahead_ms,
            source=source, on_refused=on_refused, on_shared=on_shared, progress=start,
        )  # fmt: skip


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000
