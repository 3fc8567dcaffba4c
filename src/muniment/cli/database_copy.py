"""`muniment database copy`: take a whole registry from one database to another."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Final

import click

from muniment.blocks import IN_DATABASE, open_blocks
from muniment.cli.epoch import new_number
from muniment.errors import DatabaseUnavailable, Unavailable
from muniment.storage import open_database, open_source, open_target, registry_copy as copying

if TYPE_CHECKING:
    from muniment.settings import Settings
    from muniment.storage.database import Database, Row
    from muniment.storage.registry_copy import Source

# How often a bar is drawn at most.
_BAR_STEPS: Final = 1_000
# What a shell reports of a command that Ctrl-C ended: 128 + SIGINT.
_INTERRUPTED: Final = 130
_CHANGED: Final = "FROM was written to while it was copied, and TO lacks what is newer than the copy"
_RENEWED: Final = (
    "TO has been a registry before: cursors of before are refused (410 cursor-too-old), and whoever follows a listing "
    "begins it again"
)
_UNKNOWN: Final = "TO has everything of its copy; whether FROM was written to meanwhile cannot be seen any more"
_FUNCTIONS: Final = copying.Table("functions", ("seq",))


@dataclass(slots=True)
class Summary:
    """What was copied: how many rows of each table, in which time, and whether FROM is another one since."""

    tables: dict[str, int] = field(default_factory=dict[str, int])
    seconds: float = 0.0
    # TO has been a registry before: cursors of either are refused from now on.
    epoch_renewed: bool = False
    # None: not known, since FROM does not answer any more.
    changed_meanwhile: bool | None = False

    @property
    def rows(self) -> int:
        """Of all tables."""
        return sum(self.tables.values())

    @property
    def status(self) -> int:
        """The exit status."""
        return int(self.changed_meanwhile is not False)

    def __str__(self) -> str:
        width = max(map(len, self.tables))
        lines = [f"{name:{width}}  {count}" for name, count in self.tables.items()]
        lines.append(
            f"{self.rows} rows copied in {self.seconds:.1f} s ({_rate(self.rows, self.seconds)}); TO has as many"
        )
        if self.epoch_renewed:
            lines.append(_RENEWED)
        return "\n".join(lines)

    def as_json(self) -> str:
        """The same for programs."""
        return json.dumps({**asdict(self), "rows": self.rows})


def copy(settings: Settings, source_url: str, target_url: str, *, blocks_url: str | None, as_json: bool = False) -> int:
    """Copy everything, with a bar on a terminal; the exit status: 1 when the source was written to meanwhile.

    Raises `ValueError` for URLs of no database, a target that holds something, blocks that are not where `blocks_url`
    says, and rows that the target does not take; `Unavailable` when a database does not answer.
    """
    source_url, target_url = (
        settings.database_url if each == IN_DATABASE else each for each in (source_url, target_url)
    )
    after = replace(
        settings, database_url=target_url, database_read_urls="", blocks_url=_blocks_of(settings, blocks_url)
    )
    try:
        summary = asyncio.run(_copy(settings, source_url, after))
    except KeyboardInterrupt:
        click.echo("interrupted: TO has nothing, or all if it was about to end; the same command tells", err=True)
        return _INTERRUPTED
    click.echo(summary.as_json() if as_json else str(summary))
    if summary.changed_meanwhile is not False:
        click.echo(_CHANGED if summary.changed_meanwhile else _UNKNOWN, err=True)
    return summary.status


def _blocks_of(settings: Settings, given: str | None) -> str:
    return settings.blocks_url if given is None else given


async def _copy(settings: Settings, source_url: str, after: Settings) -> Summary:
    """Copy to the database of `after`, the settings that it will be served with."""
    began, summary = time.monotonic(), Summary()
    async with open_source(source_url, data_dir=settings.data_dir) as source:
        await copying.require_level(source, "FROM")
        await _prepare(source, after)
        async with open_target(after.database_url, data_dir=after.data_dir) as target:
            await copying.require_level(target, "TO")
            await copying.require_empty(target)
            summary.epoch_renewed = await copying.copy_epoch(source, target, new_number())
            summary.tables = await copying.counted(source)
            with _progress(summary.rows) as told:
                times_differ_ms = await copying.copy_rows(source, target, told)
            await copying.require_counts(target, summary.tables)
            await target.commit(times_differ_ms)
        summary.seconds = round(time.monotonic() - began, 3)
        try:
            summary.changed_meanwhile = await source.has_changed()
        except DatabaseUnavailable:
            summary.changed_meanwhile = None
    return summary


async def _prepare(source: Source, after: Settings) -> None:
    """Migrate the target, or see that it was, and that blocks are in their place: without them a function is void."""
    try:
        database = open_database(after.database_url, data_dir=after.data_dir)
    except ValueError as refusal:
        raise ValueError(f"TO: {refusal}") from refusal
    try:
        async with open_source(after.database_url, data_dir=after.data_dir, name="TO") as view:
            await copying.require_empty(view)  # before it is changed: it may be the registry of an older release
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
            f"where TO keeps its blocks, functions of FROM have none: {len(lacking)}, the first {lacking[0].hex()}; "
            "`muniment blocks copy` goes first, and --blocks says where they are kept"
        )


async def _bring_to_level(database: Database, *, migrates: bool) -> None:
    try:
        await (database.migrate() if migrates else database.check())
    except Unavailable as refusal:
        raise type(refusal)(f"TO: {refusal.detail}") from refusal


def _rate(rows: int, seconds: float) -> str:
    return f"{rows / max(seconds, 0.001):,.0f} rows/s"


@contextmanager
def _progress(count: int) -> Generator[Callable[[int], None]]:
    """A bar with the rate, where standard error is a terminal: how to move it on by some rows."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    began, steps = time.monotonic(), max(1, count // _BAR_STEPS)

    def shown(rate: str | None) -> str | None:
        return rate

    with click.progressbar(
        length=count, label="rows", file=sys.stderr, update_min_steps=steps, show_pos=True, item_show_func=shown
    ) as bar:
        yield lambda rows: bar.update(rows, _rate(bar.pos + rows, time.monotonic() - began))
