"""`muniment blocks`."""

# ruff: noqa: PLC0415 - a command imports its work when it runs, so that `--help` is quick

from __future__ import annotations

import signal
from functools import partial
from pathlib import Path

import click

from muniment.cli import output
from muniment.cli.options import common_options, json_summary_option, require_database, settings_of


@click.group()
def blocks() -> None:
    """The blocks of bundles."""


@blocks.command("copy")
@common_options
@click.argument("source", metavar="FROM")
@click.argument("target", metavar="TO")
@json_summary_option
def copy_blocks(config: Path | None, source: str, target: str, *, as_json: bool, **flags: object) -> None:
    """Copy the blocks that TO lacks, and check each of them.

    FROM and TO are file: (in the data directory), file:///path, s3://bucket/prefix, database: (the service's own), or
    the URL of any migrated database. After an interruption, run the command again to copy the rest. The status is 1
    when a block is damaged; all others are copied.
    """
    from muniment.maintenance.copy_blocks import copy

    settings = settings_of(config, **flags)
    stop = output.StopRequest(signals=(signal.SIGINT,), ends_at_second=True)
    with output.errors_on_one_line():
        if not source.startswith("file:"):
            require_database(source, settings)
        with stop.listening(), output.progress_bars(shows_count=True) as draw:
            summary = copy(
                settings, source, target,
                on_progress=partial(draw, "blocks") if output.shows_progress() else None,
                on_finding=output.print_warning, is_stopping=stop.is_made,
            )  # fmt: skip
    output.print_summary(summary, as_json=as_json)
    raise SystemExit(stop.status if summary.interrupted else int(summary.damaged > 0))
