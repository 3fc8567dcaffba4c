"""The options that commands share, and the settings that result from them."""

from __future__ import annotations

import re
from contextlib import asynccontextmanager
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from muniment.cli import output
from muniment.service.running.settings import SettingError, Settings, load_settings

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from muniment.service.context import Context
    from muniment.service.storage.database import Database

T = TypeVar("T")
_SPAN: Final = re.compile(r"([1-9][0-9]{0,5})([hdwy])")
_HOURS: Final = {"h": 1, "d": 24, "w": 168, "y": 8_760}


def settings_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that name a registry, or its settings."""
    for option in (
        click.option("--config", type=click.Path(path_type=Path, dir_okay=False), help="TOML file with settings."),
        click.option("--database-url", help="Database; default: SQLite in the data directory."),
        click.option("--data-dir", type=click.Path(path_type=Path, file_okay=False), help="Directory for all data."),
    ):
        command = option(command)
    return command


def common_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that name a registry, and print an expected error of the command on one line."""

    @wraps(command)
    def tells_errors(*arguments: Any, **flags: Any) -> None:
        with output.errors_on_one_line():
            command(*arguments, **flags)

    return settings_options(tells_errors)


chains_option = click.option(
    "--chains",
    "chains_file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="TOML file with the chains' RPC URLs.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
json_summary_option = click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON.")


def span_ms(text: str) -> int | None:
    """The milliseconds of a span such as `30d`: hours, days, weeks or years; None for any other text."""
    span = _SPAN.fullmatch(text)
    return int(span[1]) * _HOURS[span[2]] * 3_600_000 if span else None


class NoRegistryError(click.ClickException):
    """There is no registry at the given place: status 2, as for every wrong argument."""

    exit_code = 2


def settings_of(config: Path | None, **flags: object) -> Settings:
    """The settings of the environment and of `config`. A flag with a value replaces its setting.

    Raises `click.ClickException`, as do the functions below.
    """
    try:
        return load_settings(flags, config=config)
    except SettingError as error:
        raise click.ClickException(str(error)) from error


def registry_of(config: Path | None, **flags: object) -> Settings:
    """The settings of an existing registry. A missing SQLite file is found here, a missing server at its first use."""
    settings = settings_of(config, **flags)
    require_database(settings.database_url, settings)
    return settings


def registry_with_blocks_of(config: Path | None, **flags: object) -> Settings:
    """The settings of an existing registry. If its blocks are files, it checks their directory."""
    from muniment.service.blocks import block_directory

    settings = registry_of(config, **flags)
    directory = block_directory(settings.blocks_url, settings.data_dir)
    if directory is not None and not directory.is_dir():
        raise NoRegistryError(f"no blocks here: {directory} is missing; see --data-dir")
    return settings


def named_registry_of(config: Path | None, **flags: object) -> Settings:
    """The settings, for a command that can work without a registry. A data directory in `flags` must hold one."""
    return settings_of(config, **flags) if flags.get("data_dir") is None else registry_of(config, **flags)


def secrets_of(config: Path | None, **flags: object) -> Settings:
    """The settings of a registry that has secrets: a file in its data directory, or a setting."""
    from muniment.service.auth.secrets import RING_FILE

    settings = settings_of(config, **flags)
    path = settings.data_dir / RING_FILE
    if not settings.secret and not path.is_file():
        raise NoRegistryError(f"no secrets here: {path} is missing; see --data-dir")
    return settings


def require_database(url: str, settings: Settings) -> None:
    """Raise `NoRegistryError` when `url` names an SQLite file that does not exist. `database:` means the settings' own.

    Raises `AnotherRevision` for a file that another revision made. A server is asked, and a URL of no known engine is
    refused, later, when it is opened.
    """
    from muniment.service.blocks import IN_DATABASE
    from muniment.service.storage import sqlite_file
    from muniment.service.storage.sqlite.revision import refuse_another_revision

    try:
        path = sqlite_file(settings.database_url if url == IN_DATABASE else url, data_dir=settings.data_dir)
    except ValueError:
        return
    if path is None:
        return
    if not path.is_file():
        raise NoRegistryError(f"no registry here: {path} is missing; check --data-dir or the database URL")
    refuse_another_revision(path)


def in_database(config: Path | None, flags: dict[str, object], work: Callable[[Database], Awaitable[T]]) -> T:
    """The result of `work` with the database of an existing registry. Raises its errors, and `Refusal`."""
    from muniment.operate import databases

    return databases.run(registry_of(config, **flags), work)


def in_registry(config: Path | None, flags: dict[str, object], work: Callable[[Context], Awaitable[T]]) -> T:
    """The result of `work` in a registry whose secrets and database are there. Raises its errors, and `Refusal`."""
    import asyncio

    settings = secrets_of(config, **flags)
    require_database(settings.database_url, settings)

    async def run() -> T:
        async with opened_context(settings) as context:
            return await work(context)

    return asyncio.run(run())


@asynccontextmanager
async def opened_context(settings: Settings) -> AsyncGenerator[Context]:
    """The context of a registry whose database has the schema of this release, closed at the end."""
    from muniment.operate import databases
    from muniment.service.app import build_context

    context = build_context(settings)
    try:
        await context.database.check()
        yield context
    finally:
        for each in (context.outgoing_webhooks, context.outgoing):
            await each.close()
        await databases.close(context.database)
