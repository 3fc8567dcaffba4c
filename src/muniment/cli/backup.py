"""`muniment backup` and `muniment restore`."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from muniment.cli import output
from muniment.cli.options import common_options, json_option, registry_of, settings_of

_QUESTION = (
    "API keys rotated out after the backup, and nonces used after it, become valid again.\n"
    "Revoke all earlier API keys, tokens and nonces? Users must log in and fetch a new key."
)
_directory = click.argument("directory", type=click.Path(path_type=Path, file_okay=False))


@click.command()
@common_options
@_directory
@json_option
def backup(config: Path | None, directory: Path, *, as_json: bool, **flags: object) -> None:
    """Back up a registry on SQLite to DIRECTORY. The service may keep running.

    The backup holds a snapshot of the database, the blocks of its functions, and the secrets if they are in the data
    directory. DIRECTORY must hold nothing else. A complete new backup replaces an earlier one.
    """
    from muniment.operate.backup import backup as make_backup

    settings = registry_of(config, **flags)
    with output.progress_bars() as on_progress:
        summary = make_backup(settings, directory, on_progress=on_progress, on_finding=output.print_note)
    output.print_result(summary, str(summary), as_json=as_json)


@click.command()
@common_options
@_directory
@click.option(
    "--rotate/--no-rotate",
    default=None,
    help="Revoke every earlier API key, token and nonce, or keep them; default: ask on a terminal.",
)
@json_option
def restore(config: Path | None, directory: Path, *, rotate: bool | None, as_json: bool, **flags: object) -> None:
    """Restore the backup in DIRECTORY to an empty data directory.

    The backup is checked first. After an interruption the service cannot start from the data directory; run the
    command again to finish.
    """
    from muniment.operate.restore import restore as restore_backup

    settings = settings_of(config, **flags)
    if rotate is None and not sys.stdin.isatty():
        raise ValueError("give --rotate to revoke all earlier API keys, tokens and nonces, or --no-rotate to keep them")
    with output.progress_bars() as on_progress:
        summary = restore_backup(
            settings, directory,
            rotate=rotate, wants_rotation=_wants_rotation, on_progress=on_progress, on_finding=output.print_note,
        )  # fmt: skip
    output.print_result(summary, str(summary), as_json=as_json)


def _wants_rotation() -> bool:
    return click.confirm(_QUESTION, default=True, err=True)
