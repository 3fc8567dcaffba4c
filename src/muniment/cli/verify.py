"""`muniment verify`."""

from __future__ import annotations

from pathlib import Path

import click

from muniment.cli import output
from muniment.cli.options import common_options, registry_with_blocks_of


@click.command()
@common_options
def verify(config: Path | None, **flags: object) -> None:
    """Compute every hash and check every signature of the stored data again."""
    from muniment.maintenance.verify import verify as verify_registry  # noqa: PLC0415 - `--help` is quick

    settings = registry_with_blocks_of(config, **flags)
    with output.errors_on_one_line():
        summary = verify_registry(
            settings,
            on_finding=output.print_text,
            on_checked=lambda name, count: output.print_text(f"{name}: {count} checked"),
        )
    output.print_text(f"{summary.wrong} wrong" if summary.wrong else "everything matches its signatures and hashes")
    raise SystemExit(int(summary.wrong > 0))
