"""The `muniment` command and its sub-commands; what they need is imported when they run."""

# ruff: noqa: PLC0415 - a sub-command imports what it needs, so that `--help` is quick

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from muniment.errors import Refusal
from muniment.settings import SettingError, Settings, load_settings, variable

if TYPE_CHECKING:
    from collections.abc import Callable, Generator


def _common(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options that every command has."""
    for option in (
        click.option("--config", type=click.Path(path_type=Path, dir_okay=False), help="TOML file with settings."),
        click.option("--database-url", help="Database; default: SQLite in the data directory."),
        click.option("--data-dir", type=click.Path(path_type=Path, file_okay=False), help="Directory for all data."),
    ):
        command = option(command)
    return command


_chains = click.option(
    "--chains",
    "chains_file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="TOML file with the chains' RPC URLs.",
)


def _settings(config: Path | None, **flags: object) -> Settings:
    try:
        return load_settings(flags, config=config)
    except SettingError as error:
        raise click.ClickException(str(error)) from error


@contextmanager
def _told_in_one_line() -> Generator[None]:
    """What an operator can mend, such as a directory that cannot be written, is a message and no traceback."""
    try:
        yield
    except (Refusal, SettingError, ValueError, OSError) as error:  # ValueError: a URL that no engine knows
        raise click.ClickException(str(error)) from error


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="muniment", message="muniment %(version)s")
def main() -> None:
    """Registry and intent service for wallet-signed automation on EVM chains."""


@main.command()
@_common
@click.option("--host", help="Address to listen on; default 127.0.0.1.")
@click.option("--port", type=click.IntRange(0, 65535), help="Port to listen on; 0 takes a free one; default 8787.")
@click.option("--workers", type=click.IntRange(1, 64), help="Processes that serve; default 1.")
@_chains
def serve(config: Path | None, **flags: object) -> None:
    """Run the service."""
    from muniment.cli.serve import run

    run(_settings(config, **flags))


@main.command()
@_common
@click.option("--url", help="A running service; without it one is started, and stays up until Ctrl-C.")
@click.option("--port", type=click.IntRange(0, 65535), help="Port of the service that is started.")
@_chains
def demo(config: Path | None, url: str | None, **flags: object) -> None:
    """Show the main job done over HTTP with a throw-away wallet."""
    from muniment.cli.demo import run

    run(_settings(config, **flags), url)


@main.command()
@_common
def migrate(config: Path | None, **flags: object) -> None:
    """Bring the database to this release's schema."""
    from muniment.cli.serve import migrate as run

    with _told_in_one_line():
        names = run(_settings(config, **flags))
    click.echo("\n".join(f"applied {name}" for name in names) or "the database is up to date")


@main.command("config")
@_common
def show_config(config: Path | None, **flags: object) -> None:
    """Print the effective settings, secrets masked."""
    for name, value in _settings(config, **flags).shown().items():
        click.echo(f"{variable(name)}={value}")


@main.command()
@_common
def verify(config: Path | None, **flags: object) -> None:
    """Hash every block and check every stored signature again."""
    from muniment.cli.verify import run

    with _told_in_one_line():
        raise SystemExit(run(_settings(config, **flags)))


@main.group()
def secrets() -> None:
    """The ring of secrets that tokens, nonces and API keys are made with."""


def _ring(config: Path | None, flags: dict[str, object]) -> Any:
    from muniment.auth.secrets import RingFile

    settings = _settings(config, **flags)
    if settings.secret:
        raise click.ClickException(f"the secrets come from {variable('secret')}; change them there")
    return RingFile(settings.data_dir)


@secrets.command("list")
@_common
def list_secrets(config: Path | None, **flags: object) -> None:
    """Print the ids of the secrets, newest first; never the secrets."""
    from muniment.auth.secrets import ring_of

    with _told_in_one_line():
        for secret in ring_of(_ring(config, flags)()).secrets:
            click.echo(secret.id)


@secrets.command()
@_common
def rotate(config: Path | None, **flags: object) -> None:
    """Add a new secret; what older ones signed stays good. A running service takes it up at once."""
    _change(lambda: f"new secret {_ring(config, flags).rotate().id}")


@secrets.command()
@_common
def retire(config: Path | None, **flags: object) -> None:
    """Remove the oldest secret, and with it every token and API key made under it."""
    _change(lambda: f"retired secret {_ring(config, flags).retire().id}")


def _change(change: Callable[[], str]) -> None:
    with _told_in_one_line():
        click.echo(change())


@main.group()
def users() -> None:
    """What an operator knows of users."""


@users.command("set-email")
@_common
@click.argument("address")
@click.argument("email", required=False)
def set_email(config: Path | None, address: str, email: str | None, **flags: object) -> None:
    """Set a user's EMAIL, or remove it when none is given. The user has logged in before."""
    from muniment.cli.users import set_email as run

    with _told_in_one_line():
        click.echo(run(_settings(config, **flags), address, email))


@main.group()
def chains() -> None:
    """The EVM chains that balances are read from."""


@chains.command("check")
@_common
@_chains
def check_chains(config: Path | None, **flags: object) -> None:
    """Ask every configured node what the service asks it, and say what is wrong."""
    from muniment.cli.chains import check_configured

    with _told_in_one_line():
        raise SystemExit(check_configured(_settings(config, **flags)))
