"""Commands about a registry find one, or say in one line that there is none, and make nothing."""

# ruff: noqa: PLC0415 - what is needed is imported when a command runs, so that `--help` is quick

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from muniment.cli.options import settings_of

if TYPE_CHECKING:
    from pathlib import Path

    from muniment.settings import Settings


class NoRegistryError(click.ClickException):
    """What was named is no registry: status 2, as for any wrong argument."""

    exit_code = 2


def registry_of(config: Path | None, **flags: object) -> Settings:
    """The settings of a registry that is there: its database's file is, while a server is asked when it is used.

    This and the functions below raise `click.ClickException` with status 2 otherwise.
    """
    settings = settings_of(config, **flags)
    require_database(settings.database_url, settings)
    return settings


def registry_with_blocks_of(config: Path | None, **flags: object) -> Settings:
    """Likewise, of a registry whose blocks are there: beside a server their directory, if they are files, is."""
    from muniment.blocks import block_directory

    settings = registry_of(config, **flags)
    directory = block_directory(settings.blocks_url, settings.data_dir)
    if directory is not None and not directory.is_dir():
        raise NoRegistryError(f"there are no blocks of a registry: no directory {directory}")
    return settings


def named_registry_of(config: Path | None, **flags: object) -> Settings:
    """The settings, for a command that needs no registry: but a data directory that was named holds one."""
    return settings_of(config, **flags) if flags.get("data_dir") is None else registry_of(config, **flags)


def secrets_of(config: Path | None, **flags: object) -> Settings:
    """The settings of a registry whose secrets are there: in its data directory, or in the settings."""
    from muniment.auth.secrets import RING_FILE

    settings = settings_of(config, **flags)
    path = settings.data_dir / RING_FILE
    if not settings.secret and not path.is_file():
        raise NoRegistryError(f"there are no secrets of a registry: no file {path}")
    return settings


def require_database(url: str, settings: Settings) -> None:
    """See that a database that is read is there, if it is a file; `database:` is the one of the settings.

    A URL that no engine knows is told by who opens it.
    """
    from muniment.blocks import IN_DATABASE
    from muniment.storage import sqlite_file

    try:
        path = sqlite_file(settings.database_url if url == IN_DATABASE else url, data_dir=settings.data_dir)
    except ValueError:
        return
    if path is not None and not path.is_file():
        raise NoRegistryError(f"there is no registry: no file {path}")
