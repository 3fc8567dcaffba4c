"""`muniment runs`."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from muniment.cli import output
from muniment.cli.client.runs import COMMANDS
from muniment.cli.options import common_options, in_database, json_summary_option, span_ms
from muniment.cli.verify_run import verify_run

if TYPE_CHECKING:
    from muniment.protocol.errors import Refusal
    from muniment.service.storage.database import Database


@click.group()
def runs() -> None:
    """The runs that relayers recorded for triggers that were due."""


for _command in (*COMMANDS, verify_run):
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


@runs.command("export")
@common_options
@click.argument("file", type=click.Path(dir_okay=False, allow_dash=True), default="-")
def export_runs(config: Path | None, *, file: str, **flags: object) -> None:
    """Write every run to FILE, in the format of `import`.

    Without FILE: to standard output. FILE appears when it is complete.
    """
    from muniment.operate.run_lines import exported_lines

    async def export(database: Database) -> int:
        count = 0
        with output.output_file(file) as opened:
            async for line in exported_lines(database):
                opened.write(line)
                count += 1
        return count

    count = in_database(config, flags, export)
    if file != "-":
        output.print_note(output.counted(count, "run"))


@runs.command("import")
@common_options
@click.argument("file", type=click.Path(dir_okay=False, allow_dash=True))
@json_summary_option
def import_runs(config: Path | None, *, file: str, as_json: bool, **flags: object) -> None:
    """Record the runs of FILE (- for standard input). Their triggers must be registered.

    FILE has one run a line, as JSON.

    Each refused line is reported on standard error with its number; all other lines are recorded. The validations of
    another registry are not counted: one import counts as one operator. It is safe to repeat. Exit status: 0 every
    line is recorded, 1 some lines were refused.
    """
    from muniment.operate.run_lines import import_lines

    with click.open_file(file, "rb") as opened:
        tally = in_database(
            config,
            flags,
            lambda database: import_lines(database, opened, lambda: time.time_ns() // 1_000_000, _print_refused),
        )
    text = (
        f"{output.counted(tally.lines, 'line')}: {tally.stored} stored, {tally.unchanged} unchanged, "
        f"{tally.refused} refused, {tally.blank} blank"
    )
    output.print_result(asdict(tally), text, as_json=as_json)
    raise SystemExit(int(tally.refused > 0))


def _print_refused(number: int, refusal: Refusal) -> None:
    place = "".join(f" ({fault.pointer})" for fault in refusal.faults[:1] if fault.pointer)
    output.print_note(f"line {number}: {refusal.code}: {refusal.detail}{place}")


async def _prune(database: Database, before_ms: int) -> int:
    """Remove old runs, a batch in each transaction; returns their number."""
    from muniment.service.resources.runs.pruning import remove_old

    count = 0
    while removed := await database.write(lambda tx: remove_old(tx, before_ms)):
        count += removed
    return count
