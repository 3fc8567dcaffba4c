"""What the commands have in common: their options, the settings they lead to, and how a failure is told."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from muniment.errors import Refusal
from muniment.settings import SettingError, Settings, load_settings

if TYPE_CHECKING:
    from collections.abc import Callable, Generator


def common(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options that every command has."""
    for option in (
        click.option("--config", type=click.Path(path_type=Path, dir_okay=False), help="TOML file with settings."),
        click.option("--database-url", help="Database; default: SQLite in the data directory."),
        click.option("--data-dir", type=click.Path(path_type=Path, file_okay=False), help="Directory for all data."),
    ):
        command = option(command)
    return command


with_chains = click.option(
    "--chains",
    "chains_file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="TOML file with the chains' RPC URLs.",
)


def settings_of(config: Path | None, **flags: object) -> Settings:
    """The settings of the environment and `config`, with the flags that were given laid over them."""
    try:
        return load_settings(flags, config=config)
    except SettingError as error:
        raise click.ClickException(str(error)) from error


@contextmanager
def told_in_one_line() -> Generator[None]:
    """What an operator can mend, such as a directory that cannot be written, is a message and no traceback."""
    try:
        yield
    except (Refusal, SettingError, ValueError, OSError) as error:  # ValueError: a URL that no engine knows
        raise click.ClickException(str(error)) from error


def told(say: Callable[[], str]) -> None:
    """Print what `say` says, if anything."""
    with told_in_one_line():
        if said := say():
            click.echo(said)


as_json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
