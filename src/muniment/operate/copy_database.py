"""Copy all rows of a registry from one database to another."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from muniment.operate import databases
from muniment.protocol.errors import DatabaseUnavailable, Unavailable
from muniment.service.blocks import IN_DATABASE, open_blocks
from muniment.service.resources.intents.nonces import shared_nonces
from muniment.service.storage import open_database, open_source, open_target, registry_copy as copying

if TYPE_CHECKING:
    from collections.abc import Callable

    from muniment.service.running.settings import Settings
    from muniment.service.storage.database import Database, Row
    from muniment.service.storage.registry_copy import Source

_RENEWED: Final = (
    "TO held a registry: earlier cursors are refused (410 cursor-too-old), and clients that follow a listing start over"
)
_EPOCHS: Final = copying.Table("tlog_epochs", ("epoch",))
_FUNCTIONS: Final = copying.Table("functions", ("seq",))


@dataclass(slots=True)
class Summary:
    """The number of copied rows of each table, and the duration."""

    tables: dict[str, int] = field(default_factory=dict[str, int])
    seconds: float = 0.0
    # TO held a registry: earlier cursors of both registries are refused from now on.
    epoch_renewed: bool = False
    # Whether FROM changed during the copy. None: FROM no longer answers.
    changed_meanwhile: bool | None = False

    @property
    def rows(self) -> int:
        """The rows of all tables."""
        return sum(self.tables.values())

    def __str__(self) -> str:
        width = max(map(len, self.tables))
        lines = [f"{name:{width}}  {count}" for name, count in self.tables.items()]
        rate = f"{self.rows / max(self.seconds, 0.001):,.0f} rows/s"
        lines.append(f"{self.rows} rows copied in {self.seconds:.1f} s ({rate}); the counts match")
        if self.epoch_renewed:
            lines.append(_RENEWED)
        return "\n".join(lines)


def copy(
    settings: Settings,
    source_url: str,
    target_url: str,
    *,
    blocks_url: str | None,
    on_progress: Callable[[int, int], None],
    on_finding: Callable[[str], None],
) -> Summary:
    """Copy all rows. `on_progress` gets the number of copied rows, and of all.

    `on_finding` gets a line for each pair of intents with one nonce, also copied.

    Raises `ValueError` for URLs of no database, a target that is not empty, functions whose blocks are not at
    `blocks_url`, and rows that the target refuses; `Unavailable` when a database does not answer.
    """
    source_url, target_url = (
        settings.database_url if each == IN_DATABASE else each for each in (source_url, target_url)
    )
    after = replace(
        settings,
        database_url=target_url,
        database_read_urls="",
        blocks_url=settings.blocks_url if blocks_url is None else blocks_url,
    )
    return asyncio.run(_copy_and_tell(settings, source_url, after, on_progress, on_finding))


async def _copy_and_tell(
    settings: Settings,
    source_url: str,
    after: Settings,
    on_progress: Callable[[int, int], None],
    on_finding: Callable[[str], None],
) -> Summary:
    summary = await _copy(settings, source_url, after, on_progress)
    async with databases.opened(after) as copied:
        async for line in shared_nonces(copied):
            on_finding(line)
    return summary


async def _copy(
    settings: Settings, source_url: str, after: Settings, on_progress: Callable[[int, int], None]
) -> Summary:
    """Copy to the database of `after`, the settings of the service after the copy."""
    began, summary = time.monotonic(), Summary()
    async with open_source(source_url, data_dir=settings.data_dir) as source:
        await copying.require_level(source, "FROM")
        await _require_standing_log(source)
        await _prepare(source, after)
        async with open_target(after.database_url, data_dir=after.data_dir) as target:
            await copying.require_level(target, "TO")
            await copying.require_empty(target)
            summary.epoch_renewed = await copying.copy_epoch(source, target, databases.new_epoch())
            summary.tables = await copying.counted(source)
            done = 0

            def add(rows: int) -> None:
                nonlocal done
                done += rows
                on_progress(done, summary.rows)

            on_progress(0, summary.rows)
            times_differ_ms = await copying.copy_rows(source, target, add)
            await copying.require_counts(target, summary.tables)
            await target.commit(times_differ_ms)
        summary.seconds = round(time.monotonic() - began, 3)
        try:
            summary.changed_meanwhile = await source.has_changed()
        except DatabaseUnavailable:
            summary.changed_meanwhile = None
    return summary


async def _require_standing_log(source: Source) -> None:
    """Raise `ValueError` while a log of FROM is open, because TO would fork it."""
    async for rows in source.rows(_EPOCHS, ["origin", "state"]):
        for origin, state in rows:
            if state in {"open", "closing"}:
                raise ValueError(
                    f"the transparency log {origin} of FROM is {state}, and two databases must not continue it: run "
                    "`muniment tlog freeze` before the copy, and `muniment tlog resume` with TO after it"
                )


async def _prepare(source: Source, after: Settings) -> None:
    """Migrate the target or check its schema, and check that the target has the blocks of every function."""
    try:
        database = open_database(after.database_url, data_dir=after.data_dir)
    except ValueError as refusal:
        raise ValueError(f"TO: {refusal}") from refusal
    try:
        async with open_source(after.database_url, data_dir=after.data_dir, name="TO") as view:
            await copying.require_empty(view)  # before a migration: it may be the registry of an older release
        await _bring_to_level(database, migrates=after.migrates_at_start)
        blocks = open_blocks(
            after.blocks_url, data_dir=after.data_dir,
            database=database, database_url=after.database_url, loop=asyncio.get_running_loop(),
        )  # fmt: skip

        def absent(rows: list[Row]) -> list[bytes]:
            return [digest for (digest,) in rows if not blocks.has(digest)]

        lacking = [
            each async for rows in source.rows(_FUNCTIONS, ["digest"]) for each in await asyncio.to_thread(absent, rows)
        ]
    finally:
        await database.close()
    if lacking:
        raise ValueError(
            f"TO lacks the blocks of {len(lacking)} functions of FROM, the first is {lacking[0].hex()}; run "
            "`muniment blocks copy` first, and give the place of the blocks with --blocks"
        )


async def _bring_to_level(database: Database, *, migrates: bool) -> None:
    try:
        await (database.migrate() if migrates else database.check())
    except Unavailable as refusal:
        raise type(refusal)(f"TO: {refusal.detail}") from refusal
