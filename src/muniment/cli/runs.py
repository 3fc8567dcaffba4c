"""`muniment runs`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from muniment.cli import output
from muniment.cli.client.runs import COMMANDS
from muniment.cli.options import common_options, in_database, json_summary_option, span_ms
from muniment.cli.removed import removed_command
from muniment.cli.verify_run import verify_run

if TYPE_CHECKING:
    from muniment.service.storage.database import Database


@click.group()
def runs() -> None:
    """The runs that relayers recorded for triggers that were due."""


for _command in (
    *COMMANDS,
    verify_run,
    removed_command("import", "runs stay with their registry, or move with all of it by `muniment database copy`"),
    removed_command("export", "`muniment runs list --all --json` prints every run"),
):
    runs.add_command(_command)


@runs.command("prune")
@common_options
@click.option("--older", required=True, metavar="SPAN", help="Age of the runs to remove: 30d, 12h, 8w or 1y.")
@json_summary_option
def prune_runs(config: Path | None, older: str, *, as_json: bool, **flags: object) -> None:
    """Remove old runs without intents. Runs with intents stay.

    A running service removes those older than `runs_keep_days` by itself.
    """
    if (age_ms := span_ms(older)) is None:
        raise click.BadParameter(f"{older}: give 30d, 12h, 8w or 1y", param_hint="--older")
    before_ms = time.time_ns() // 1_000_000 - age_ms
    count = in_database(config, flags, lambda database: _prune(database, before_ms))
    output.print_result({"removed": count}, f"{output.counted(count, 'run')} removed", as_json=as_json)


async def _prune(database: Database, before_ms: int) -> int:
    """Remove old runs, a batch in each transaction; returns their number."""
    from muniment.service.resources.runs.pruning import remove_old

    count = 0
    while removed := await database.write(lambda tx: remove_old(tx, before_ms)):
        count += removed
    return count
