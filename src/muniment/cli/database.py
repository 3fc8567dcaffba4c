"""`muniment database` and `muniment epoch`."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from pathlib import Path

import click

from muniment.cli import output
from muniment.cli.options import common_options, json_summary_option, registry_of, require_database, settings_of


@click.group()
def database() -> None:
    """The database of a registry."""


@database.command("copy")
@common_options
@click.argument("source", metavar="FROM")
@click.argument("target", metavar="TO")
@click.option("--blocks", "blocks_url", help="Place of the blocks of TO; default: the value of MUNIMENT_BLOCKS_URL.")
@json_summary_option
def copy_database(
    config: Path | None, source: str, target: str, blocks_url: str | None, *, as_json: bool, **flags: object
) -> None:
    """Copy a whole registry, except its blocks, to an empty database.

    FROM and TO are URLs of databases, or database: (the service's own). First stop all services that write to FROM, and
    copy the blocks with `muniment blocks copy`. TO stays empty until the copy is complete. Exit status 1: FROM was
    written to during the copy.
    """
    from muniment.operate.copy_database import copy

    settings = settings_of(config, **flags)
    if source == "database:":  # the copy refuses other missing places, and calls them FROM
        require_database(source, settings)
    try:
        with output.progress_bars(shows_count=True, unit="rows") as draw:
            summary = copy(
                settings, source, target,
                blocks_url=blocks_url, on_progress=partial(draw, "rows"), on_finding=output.print_note,
            )  # fmt: skip
    except KeyboardInterrupt:
        output.print_note("Interrupted. TO is empty or complete; run the command again to see which.")
        raise SystemExit(output.INTERRUPTED) from None
    output.print_result({**asdict(summary), "rows": summary.rows}, str(summary), as_json=as_json)
    if summary.changed_meanwhile is None:
        output.print_note("TO is a complete copy, but FROM no longer answers: it may have newer rows")
    elif summary.changed_meanwhile:
        output.print_note("FROM was written to during the copy, and TO lacks the newer rows")
    raise SystemExit(int(summary.changed_meanwhile is not False))


@click.group()
def epoch() -> None:
    """The epoch of listing cursors."""


@epoch.command("renew")
@common_options
def renew_epoch(config: Path | None, **flags: object) -> None:
    """Begin a new epoch, which refuses earlier cursors. Clients that follow a listing start over.

    This is necessary after a return to an earlier state without `muniment restore`: from a dump, a replica that lacked
    writes, Litestream or a copy of the disk. New rows then get the numbers of lost rows, and an earlier cursor would
    skip them. Run it before the service starts.
    Nothing else changes, and the command can be repeated.
    """
    from muniment.operate import databases

    settings = registry_of(config, **flags)
    seconds = databases.renew_epoch(settings)
    output.print_text(
        "a new epoch has begun: every earlier cursor is refused (410 cursor-too-old), by running services within "
        f"{seconds:g} seconds; clients that follow a listing start over"
    )
